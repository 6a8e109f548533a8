//! The access under which rows are read.
use outlast_vocab::access::Access;
use std::sync::LazyLock;

/// The access of code that reads the rows directly.
static OPERATOR: LazyLock<Access> = LazyLock::new(Access::operator);

/// The access that rows are filtered for.
pub trait RowAccess {
    /// Returns the access that these rows are filtered for. [`crate::scoped`] shows only the rows of one
    /// organisation.
    fn access(&self) -> &Access {
        &OPERATOR
    }
}
