//! Tests with a bucket on a real S3-compatible server.
use crate::server::Server;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use outlast_conformance::{ContentsFixture, RuleFuture};
use outlast_objects::ObjectContents;
use outlast_ports::contents::{ContentStorage, single_chunk};
use outlast_vocab::{Hash, Kind, Millis};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const DATABASE: &str = "0123456789abcdef";

struct Bucket {
    objects: ObjectContents,
    /// A direct client of the same bucket.
    behind: Arc<dyn ObjectStore>,
    server: Server,
}

fn fresh() -> Bucket {
    let server = Server::start();
    let behind = reach(&server, "files");
    let root = Name::from(format!("some/prefix/{DATABASE}"));
    let objects = ObjectContents::with_store(behind.clone(), "the bucket".to_owned(), root);
    Bucket { objects, behind, server }
}

fn reach(server: &Server, bucket: &str) -> Arc<dyn ObjectStore> {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig { max_retries: 2, ..RetryConfig::default() };
    let builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_access_key_id("test")
        .with_secret_access_key("test")
        .with_retry(retry);
    Arc::new(builder.build().unwrap())
}

impl ContentsFixture for Bucket {
    fn contents(&self) -> &dyn ContentStorage {
        &self.objects
    }

    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Millis(u64::try_from(since.as_millis()).unwrap())
    }

    fn corrupt(&self, content: Hash, bytes: &[u8]) {
        let hex = content.to_string();
        let name = format!("some/prefix/{DATABASE}/contents/{}/{hex}", &hex[..2]);
        let put = async { drop(self.behind.put(&Name::from(name), bytes.to_vec().into()).await.unwrap()) };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(put));
    }

    fn run(&self, rule: RuleFuture<'_>) {
        crate::run(rule);
    }
}

outlast_conformance::contents_conformance!(fresh);

#[tokio::test]
async fn large_put_leaves_only_its_content_in_bucket() {
    let bucket = fresh();
    let stored = bucket.objects.put(single_chunk(vec![7; 20 << 20]), 32 << 20).await.unwrap();
    let all: Vec<_> = bucket.behind.list(None).try_collect().await.unwrap();
    let hex = stored.content.to_string();
    let names: Vec<String> = all.into_iter().map(|meta| meta.location.to_string()).collect();
    assert_eq!(names, [format!("some/prefix/{DATABASE}/contents/{}/{hex}", &hex[..2])]);
}

#[tokio::test]
async fn unresponsive_bucket_is_reported_as_unavailable() {
    let Bucket { objects, server, .. } = fresh();
    let stored = objects.put(single_chunk("hello"), 100).await.unwrap();
    drop(server);
    for error in [
        objects.put(single_chunk("again"), 100).await.unwrap_err(),
        objects.info(stored.content).await.unwrap_err(),
        objects.get(stored.content, 0..5).await.err().unwrap(),
    ] {
        assert_eq!(error.kind(), Kind::AttachmentUnavailable);
        assert!(error.detail().starts_with("the bucket cannot store or read content: "), "{error}");
    }
}

#[tokio::test]
async fn missing_bucket_is_reported() {
    let server = Server::start();
    let objects =
        ObjectContents::with_store(reach(&server, "absent"), "the bucket".to_owned(), Name::from(DATABASE));
    let error = objects.put(single_chunk("hello"), 100).await.unwrap_err();
    assert_eq!(error.kind(), Kind::AttachmentUnavailable);
    assert!(error.detail().contains("NoSuchBucket"), "{error}");
}
