//! Tests of agents in the database, and of `outlast agents import`.
use crate::place::Place;
use expect_test::expect;

fn folder(place: &Place, name: &str) {
    std::fs::create_dir_all(place.path().join(name)).unwrap();
}

fn skill(place: &Place, name: &str, front: &str) {
    folder(place, &format!("skills/{name}"));
    place.write(
        &format!("skills/{name}/SKILL.md"),
        &format!("---\n{front}\n---\n\n# How\n\nRead reference.md first.\n"),
    );
}

#[test]
fn imported_skill_becomes_a_capability_opened_on_demand() {
    let place = Place::with_script(
        "when read\ncall open_document {\"path\": \"pdf/SKILL.md\"}\n---\ncall open_document {\"path\": \"pdf/more/reference.md\"}\n\
         ---\nsay {{result open_document}}\n",
    );
    skill(
        &place,
        "pdf",
        "name: pdf\ndescription: >\n  Reads PDFs. Use it when somebody\n  shows one.\nlicense: MIT",
    );
    folder(&place, "skills/pdf/more");
    place.write("skills/pdf/more/reference.md", "Pages count from one.");
    std::fs::write(place.path().join("skills/pdf/logo.png"), b"\x89PNG\xff").unwrap();
    place.write("skills/pdf/huge.txt", &"x".repeat((1 << 20) + 1));
    place.write("clerk.toml", "name = \"clerk\"\nsystem = \"Help.\"\ncapabilities = [\"pdf\"]\n");
    place.check(
        "agents import skills
         agents import skills/pdf
         agents import clerk.toml
         run read --session ann --agent clerk --script script.txt
         agents show clerk
         agents import skills --to outlast.toml
         agents show clerk.toml
         config check",
        &expect![[r#"
            $ agents import skills
            capability pdf, version 1, in the database
            | · skills/pdf/huge.txt has 1048577 bytes, more than the 1048576 allowed for a file of a skill, and is skipped
            | · skills/pdf/logo.png is no text and is skipped
            $ agents import skills/pdf
            capability pdf, version 1, in the database
            | · skills/pdf/huge.txt has 1048577 bytes, more than the 1048576 allowed for a file of a skill, and is skipped
            | · skills/pdf/logo.png is no text and is skipped
            $ agents import clerk.toml
            agent clerk, version 1, in the database
            $ run read --session ann --agent clerk --script script.txt
            Pages count from one.
            | · open_document {"path":"pdf/SKILL.md"}
            | · open_document → ---⏎name: pdf⏎description: >⏎  Reads PDFs. Use it when somebody⏎  shows …
            | · open_document {"path":"pdf/more/reference.md"}
            | · open_document → Pages count from one.
            $ agents show clerk
            agent clerk
            package 5dc7c0eba4f923162bbb8e20b44b27e271e9141349a4303c35bfda670fc5799d
            layers capability pdf → agent clerk
            capabilities.pdf = pdf (capability pdf → agent clerk)
            documents.pdf/SKILL.md = ---⏎name: pdf⏎description: >⏎  Reads PDFs. Use it when somebody⏎  shows one.⏎license: MIT⏎---⏎⏎# How… (capability pdf)
            documents.pdf/more/reference.md = Pages count from one. (capability pdf)
            system = ["Skill `pdf`: Reads PDFs. Use it when somebody shows one.\nBefore you use it, open `pdf/SKILL.md` w… (capability pdf → agent clerk)
            $ agents import skills --to outlast.toml
            | · skills/pdf/huge.txt has 1048577 bytes, more than the 1048576 allowed for a file of a skill, and is skipped
            | · skills/pdf/logo.png is no text and is skipped
            | · written into outlast.toml
            $ agents show clerk.toml
            agent clerk
            package 5dc7c0eba4f923162bbb8e20b44b27e271e9141349a4303c35bfda670fc5799d
            layers capability pdf → agent clerk
            capabilities.pdf = pdf (capability pdf → agent clerk)
            documents.pdf/SKILL.md = ---⏎name: pdf⏎description: >⏎  Reads PDFs. Use it when somebody⏎  shows one.⏎license: MIT⏎---⏎⏎# How… (capability pdf)
            documents.pdf/more/reference.md = Pages count from one. (capability pdf)
            system = ["Skill `pdf`: Reads PDFs. Use it when somebody shows one.\nBefore you use it, open `pdf/SKILL.md` w… (capability pdf → agent clerk)
            $ config check
            outlast.toml: 0 providers, 0 agents, 0 harnesses, 1 capability, no mistakes
        "#]],
    );
}

#[test]
fn imported_agent_answers_and_its_versions_are_compared() {
    let place = Place::with_script("say hi");
    folder(&place, "shop");
    place.write("shop/AGENTS.md", "# Shop\n\nSell cakes.\n");
    place.check(
        "agents import shop/AGENTS.md\nrun hi --session ann --agent shop --script script.txt",
        &expect![[r#"
            $ agents import shop/AGENTS.md
            agent shop, version 1, in the database
            $ run hi --session ann --agent shop --script script.txt
            hi
        "#]],
    );
    place.write("shop/AGENTS.md", "# Shop\n\nSell cakes and tea.\n");
    place.write("base.toml", "[harnesses.base]\nmodel_calls = 3\n[agents.judge]\nparent = \"base\"\n");
    place.check(
        "agents import shop/AGENTS.md
         agents import shop/AGENTS.md
         agents import shop/AGENTS.md --name baker
         agents import base.toml
         agents history shop
         agents diff shop@1 shop
         agents diff shop@3 shop
         agents history nobody
         agents list
         agents import shop/AGENTS.md --name shop --to agents.toml
         run hi --session bob --agent judge --script script.txt",
        &expect![[r#"
            $ agents import shop/AGENTS.md
            agent shop, version 2, in the database
            $ agents import shop/AGENTS.md
            agent shop, version 2, in the database
            $ agents import shop/AGENTS.md --name baker
            agent baker, version 1, in the database
            $ agents import base.toml
            harness base, version 1, in the database
            agent judge, version 1, in the database
            $ agents history shop
            VERSION  SINCE                 FINGERPRINT
            2        TIME  54f6030253945bb0d5c2c79f4bd4bf53b3a1f87db27917382a20a7ef6dfe4afc
            1        TIME  9455b1ae91b8a6b8a7d401ec74d750f234f296d36590fbd44872a295e5598004
            $ agents diff shop@1 shop
              system:
            - Sell cakes.
            + Sell cakes and tea.
            $ agents diff shop@3 shop
            | error[agent.not_found]: the database has no version `3` of the agent `shop`; the newest is 2
            |   read on with: outlast explain agent.not_found
            exit 1
            $ agents history nobody
            | error[agent.not_found]: the database has no agent `nobody`; `outlast agents list` lists the agents
            |   read on with: outlast explain agent.not_found
            exit 1
            $ agents list
            AGENT  IN                   MODEL            LAYERS                      PACKAGE
            baker  database, version 1  rehearsal/agent  agent baker                 e843fe2b8c1b5e2b07981259b901be5b7a6bff86792630f5041e207a8684f085
            judge  database, version 1  rehearsal/agent  harness base → agent judge  f95d10461f407db1a012ac1aef360e1bb11ea10918ced3b86934d970fa31e2bb
            shop   database, version 2  rehearsal/agent  agent shop                  80b8452fea5b892f21d09963994b0969a0b8c4ae3207dd960c6fdb719196e5e9
            $ agents import shop/AGENTS.md --name shop --to agents.toml
            | · written into agents.toml
            $ run hi --session bob --agent judge --script script.txt
            hi
        "#]],
    );
    assert_eq!(
        std::fs::read_to_string(place.path().join("agents.toml")).unwrap(),
        "[agents.\"shop\"]\nsystem = \"# Shop\\n\\nSell cakes and tea.\"\n"
    );
    // The configuration takes precedence over the database.
    place.write("outlast.toml", "[agents.shop]\nsystem = \"Closed.\"\n");
    place.check(
        "agents show shop",
        &expect![[r#"
        $ agents show shop
        agent shop
        package a1e356e9376d693b420435c08fa24dae8cdc763acad730189325bf4c3af3673c
        layers agent shop
        system = Closed. (agent shop)
    "#]],
    );
}

#[test]
fn invalid_import_is_rejected_and_stores_nothing() {
    let place = Place::new();
    folder(&place, "empty");
    skill(&place, "upper", "name: Upper\ndescription: x");
    place.check("agents import skills/upper", &expect![[r#"
        $ agents import skills/upper
        | error[config.invalid]: skills/upper/SKILL.md:2: expected a name of lower-case letters, digits and single hyphens, got `Upper`
        |   read on with: outlast explain config.invalid
        exit 1
    "#]]);
    skill(&place, "upper", "name: other\ndescription: x");
    place.check("agents import skills", &expect![[r#"
        $ agents import skills
        | error[config.invalid]: skills/upper/SKILL.md:2: the skill is called `other`, but its folder has another name; use the same name for both
        |   read on with: outlast explain config.invalid
        exit 1
    "#]]);
    skill(&place, "upper", "name: upper");
    place.write("blank.md", " \n");
    place.check(
        "agents import skills
         agents import empty
         agents import nowhere
         agents import blank.md",
        &expect![[r#"
            $ agents import skills
            | error[config.invalid]: skills/upper/SKILL.md:1: expected `description` in the front matter
            |   read on with: outlast explain config.invalid
            exit 1
            $ agents import empty
            | error[input.invalid]: empty: expected `SKILL.md` in it or in its folders
            |   read on with: outlast explain input.invalid
            exit 1
            $ agents import nowhere
            | error[io.failed]: nowhere cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
            $ agents import blank.md
            | error[input.invalid]: blank.md: the file is empty
            |   read on with: outlast explain input.invalid
            exit 1
        "#]],
    );
    assert!(!place.data().exists());
}
