//! Reads Agent Skills and `AGENTS.md` as layers.
//!
//! A skill becomes a capability. The prompt contains its name and description. Its text and the files next to
//! it become documents, which the model opens when it needs them.
use crate::config::document::{FILE_BYTES, read_text};
use outlast::vocab::overlay::{CapabilityLayer, Layer, Overlay};
use outlast::{Error, Kind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file that marks a folder as a skill.
const SKILL: &str = "SKILL.md";

/// The maximum number of files of one skill.
const FILES: usize = 200;

/// The maximum lengths of a name and a description, from the specification.
const NAME: usize = 64;
const DESCRIPTION: usize = 1_024;

/// A skill with its files.
pub(crate) struct Skill {
    pub(crate) name: String,
    /// The purpose of the skill, and when to use it.
    pub(crate) description: String,
    /// Its text files, by the path with which the model opens each.
    pub(crate) files: BTreeMap<String, PathBuf>,
    /// Files that were left out, each with the reason.
    pub(crate) left_out: Vec<(PathBuf, String)>,
}

impl Skill {
    /// Returns the text about the skill for the prompt.
    pub(crate) fn prompt_text(&self) -> String {
        let Self { name, description, files, .. } = self;
        let main = format!("{name}/{SKILL}");
        let others: Vec<&str> = files.keys().map(String::as_str).filter(|path| *path != main).collect();
        let more =
            if others.is_empty() { String::new() } else { format!(" It comes with: {}.", others.join(", ")) };
        format!("Skill `{name}`: {description}\nBefore you use it, open `{main}` with `open_document`.{more}")
    }

    /// Converts the skill to a capability.
    pub(crate) fn capability(&self) -> Result<CapabilityLayer, Error> {
        let mut documents = BTreeMap::new();
        for (path, file) in &self.files {
            documents.insert(path.clone(), read_text(file, "file of a skill")?);
        }
        let overlay = Overlay { system: vec![self.prompt_text()], documents, ..Overlay::default() };
        Ok(CapabilityLayer { description: self.description.clone(), overlay, ..CapabilityLayer::default() })
    }
}

/// Reads the skill in this folder, or all skills in its subfolders.
pub(crate) fn read(folder: &Path) -> Result<Vec<Skill>, Error> {
    if folder.join(SKILL).is_file() {
        return Ok(vec![skill(folder)?]);
    }
    let mut skills = Vec::new();
    for entry in entries(folder)? {
        if entry.join(SKILL).is_file() {
            skills.push(skill(&entry)?);
        }
    }
    if skills.is_empty() {
        let detail = format!("{}: expected `{SKILL}` in it or in its folders", folder.display());
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    Ok(skills)
}

/// Reads a file like `AGENTS.md` as an agent.
pub(crate) fn instructions(path: &Path) -> Result<Layer, Error> {
    let system = read_text(path, "instructions")?;
    if system.trim().is_empty() {
        return Err(Error::new(Kind::InputInvalid, format!("{}: the file is empty", path.display())));
    }
    Ok(Layer {
        parent: None,
        overlay: Overlay { system: vec![system.trim().to_owned()], ..Overlay::default() },
    })
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let unread = |cause: std::io::Error| {
        Error::new(Kind::IoFailed, format!("{} cannot be read: {cause}", folder.display())).because(cause)
    };
    let listed = std::fs::read_dir(folder).map_err(unread)?;
    let mut entries =
        listed.map(|entry| Ok(entry.map_err(unread)?.path())).collect::<Result<Vec<_>, Error>>()?;
    entries.sort();
    Ok(entries)
}

fn skill(folder: &Path) -> Result<Skill, Error> {
    let path = folder.join(SKILL);
    let text = read_text(&path, "skill")?;
    let invalid = |line: usize, what: &str| {
        Error::new(Kind::ConfigInvalid, format!("{}:{line}: {what}", path.display()))
    };
    let fields = front_matter(&text).map_err(|(line, what)| invalid(line, what))?;
    let field = |name: &str, most: usize| {
        let (line, value) =
            fields.get(name).ok_or_else(|| invalid(1, &format!("expected `{name}` in the front matter")))?;
        if value.is_empty() || value.chars().count() > most {
            let what = format!("expected a {name} of 1 to {most} letters, got {}", value.chars().count());
            return Err(invalid(*line, &what));
        }
        Ok((*line, value.clone()))
    };
    let (line, name) = field("name", NAME)?;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(fits) || name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        let what = format!("expected a name of lower-case letters, digits and single hyphens, got `{name}`");
        return Err(invalid(line, &what));
    }
    let of_folder = folder.canonicalize().ok().and_then(|folder| Some(folder.file_name()?.to_owned()));
    if of_folder.as_ref().is_some_and(|of_folder| *of_folder != *name) {
        let what = format!(
            "the skill is called `{name}`, but its folder has another name; use the same name for both"
        );
        return Err(invalid(line, &what));
    }
    let (_, description) = field("description", DESCRIPTION)?;
    let mut skill = Skill { name, description, files: BTreeMap::new(), left_out: Vec::new() };
    gather(folder, &skill.name.clone(), &mut skill)?;
    Ok(skill)
}

/// Adds the files of a folder and its subfolders. Symbolic links are skipped, because they may point
/// anywhere.
fn gather(folder: &Path, at: &str, skill: &mut Skill) -> Result<(), Error> {
    for entry in entries(folder)? {
        let Some(name) = entry.file_name().and_then(|name| name.to_str()) else { continue };
        let Ok(found) = entry.symlink_metadata() else { continue };
        if name.starts_with('.') || found.is_symlink() {
            continue;
        }
        let path = format!("{at}/{name}");
        if found.is_dir() {
            gather(&entry, &path, skill)?;
        } else if found.len() > FILE_BYTES {
            let why = format!(
                "has {} bytes, more than the {FILE_BYTES} allowed for a file of a skill,",
                found.len()
            );
            skill.left_out.push((entry, why));
        } else if read_text(&entry, "file of a skill").is_ok() {
            skill.files.insert(path, entry);
        } else {
            skill.left_out.push((entry, "is no text".to_owned()));
        }
        outlast::vocab::limits::check("files_per_skill", skill.files.len(), FILES)?;
    }
    Ok(())
}

type FrontMatterFields = BTreeMap<String, (usize, String)>;

/// Parses the front matter into fields with their line numbers. Values may be plain, quoted, or blocks.
/// Nested values are skipped.
fn front_matter(text: &str) -> Result<FrontMatterFields, (usize, &'static str)> {
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end())).peekable();
    if lines.next().is_none_or(|(_, line)| line.trim_start_matches('\u{feff}') != "---") {
        return Err((1, "expected front matter: a line `---`, the fields, and another line `---`"));
    }
    let mut fields = FrontMatterFields::new();
    while let Some((at, line)) = lines.next() {
        if line == "---" {
            return Ok(fields);
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, rest)) = line.split_once(':').filter(|_| !line.starts_with([' ', '\t', '-'])) else {
            return Err((at, "expected a field like `name: pdf`"));
        };
        let mut block = Vec::new();
        while let Some((_, line)) =
            lines.next_if(|(_, line)| line.is_empty() || line.starts_with([' ', '\t']))
        {
            block.push(line.trim());
        }
        fields.insert(name.trim().to_owned(), (at, scalar(rest.trim(), &block)));
    }
    Err((1, "expected a line `---` that ends the front matter"))
}

fn scalar(rest: &str, block: &[&str]) -> String {
    let joined = |between: &str| block.join(between).trim().to_owned();
    match rest.chars().next() {
        Some('|') => joined("\n"),
        Some('>') => joined(" "),
        Some('"') => {
            let whole = format!("{rest} {}", joined(" "));
            serde_json::from_str(whole.trim()).unwrap_or_else(|_| whole.trim().trim_matches('"').to_owned())
        }
        Some('\'') => format!("{rest} {}", joined(" ")).trim().trim_matches('\'').replace("''", "'"),
        _ => {
            let plain = rest.split(" #").next().unwrap_or_default();
            format!("{plain} {}", joined(" ")).trim().to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<(String, String)> {
        let fields = front_matter(text).unwrap();
        fields.into_iter().map(|(name, (_, value))| (name, value)).collect()
    }

    #[test]
    fn front_matter_parses_plain_quoted_and_folded_values() {
        let read = fields(
            "---\nname: pdf # short\ndescription: >\n  Reads\n  PDFs.\n\nlicense: \"MIT: all of it\"\nquoted: 'it''s'\n\
             text: |\n  one\n  two\nplain: goes\n  on\nmetadata:\n  author: ann\n---\nbody: no field\n",
        );
        let want = [
            ("description", "Reads PDFs."),
            ("license", "MIT: all of it"),
            ("metadata", "author: ann"),
            ("name", "pdf"),
            ("plain", "goes on"),
            ("quoted", "it's"),
            ("text", "one\ntwo"),
        ];
        assert_eq!(read, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn invalid_front_matter_is_rejected_with_its_line() {
        assert_eq!(front_matter("# Title\n").unwrap_err().0, 1);
        assert_eq!(front_matter("---\nname: x\n").unwrap_err().0, 1);
        assert_eq!(front_matter("---\n\nno field\n---\n").unwrap_err().0, 3);
        assert_eq!(front_matter("").unwrap_err().0, 1);
    }
}
