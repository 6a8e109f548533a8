//! Tests of a server's resources and prompts, for a model and for a person.
use super::{accept, plain, play};
use expect_test::expect;

#[test]
fn model_reads_mcp_resources() {
    let place = plain("library", "");
    accept(&place);
    play(
        &place,
        "call plain.read_resource {}\n---\ncall plain.read_resource {\"uri\": \"book://one\"}\n---\n\
         call plain.read_resource {\"uri\": \"book://cover\"}\n---\n\
         call plain.read_resource {\"uri\": \"book://two\"}\n---\nsay {{result 0}}",
        &expect![[r#"
            book://one one: A tale.
            book://cover cover
            book://{n} any
            | · plain.read_resource {} (rule `servers`)
            | · plain.read_resource → book://one one: A tale.⏎book://cover cover⏎book://{n} any
            | · plain.read_resource {"uri":"book://one"} (rule `servers`)
            | · plain.read_resource → Once upon a time.\u{1b}[2J
            | · plain.read_resource {"uri":"book://cover"} (rule `servers`)
            | · plain.read_resource → [a resource, image/png, 4 bytes: att_7894079b3a59cb58c39674fad62d4e92]
            | · plain.read_resource {"uri":"book://two"} (rule `servers`)
            | · plain.read_resource → error tool.failed: the MCP server `plain` refuses: no such book
        "#]],
    );
    place.check(
        "attachments ann",
        &expect![[r#"
        $ attachments ann
        att_7894079b3a59cb58c39674fad62d4e92 image/png 4 bytes cover
    "#]],
    );
}

#[test]
fn cli_reads_mcp_resources_and_prompts() {
    let place = plain("library", "");
    place.check(
        "mcp accept plain
         mcp read plain book://one
         mcp read plain book://cover
         mcp read plain book://cover --to cover.png
         mcp read plain book://two
         mcp prompt plain review code=this
         mcp prompt plain review code=this style=kind
         mcp prompt plain review code",
        &expect![[r#"
            $ mcp accept plain
            plain 1: 4 tools, 2 resources, 1 prompt
            new      echo Says it back.
            new      ask Asks.
            new      environ Tells its environment.
            new      read_resource Reads a resource of this server by its address. Without an address it lists the resources.
            resource book://one
            resource book://cover
            prompt   review code=… [style=…]
            | · accepted 4 tools in agent.mcp.json
            $ mcp read plain book://one
            Once upon a time.\u{1b}[2J
            $ mcp read plain book://cover
            | · image/png, 4 bytes; `--to FILE` saves it
            $ mcp read plain book://cover --to cover.png
            | · 4 bytes in cover.png
            $ mcp read plain book://two
            | error[tool.failed]: the MCP server `plain` refuses: no such book
            |   read on with: outlast explain tool.failed
            exit 1
            $ mcp prompt plain review code=this
            Review this.
            $ mcp prompt plain review code=this style=kind
            user: Review this.
            assistant: Gladly, kind.
            $ mcp prompt plain review code
            | error: invalid value 'code' for '[KEY=VALUE]...': expected KEY=VALUE
            | 
            | For more information, try '--help'.
            exit 2
        "#]],
    );
    assert_eq!(std::fs::read(place.path().join("cover.png")).unwrap(), *b"\x89PNG");
}

#[test]
fn saved_resources_are_private() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = plain("library", "");
    let save = |to: &str| place.output(&["mcp", "read", "plain", "book://cover", "--to", to]);
    assert!(save("cover.png").status.success());
    let mode = std::fs::metadata(place.path().join("cover.png")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    place.write("victim.txt", "mine");
    symlink("victim.txt", place.path().join("link.png")).unwrap();
    for taken in ["victim.txt", "link.png"] {
        let shown = place.show(&save(taken));
        assert!(shown.contains("io.failed") && shown.contains("cannot be written"), "{shown}");
    }
    assert_eq!(std::fs::read_to_string(place.path().join("victim.txt")).unwrap(), "mine");
}
