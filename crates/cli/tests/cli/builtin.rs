//! End-to-end tests of the built-in tools in an agent file.
use crate::place::Place;
use expect_test::{Expect, expect};
use std::io::{Read, Write};
use std::net::TcpListener;

/// Runs an agent with the script and compares its output.
#[track_caller]
fn check(place: &Place, agent: &str, want: &Expect) {
    place.write("agent.toml", agent);
    let output = place.output(&["run", "go", "--agent", "agent.toml", "--script", "script.txt"]);
    assert!(output.status.success(), "{}", place.show(&output));
    want.assert_eq(&String::from_utf8(output.stdout).unwrap());
}

#[test]
fn file_agent_has_the_builtin_tools_it_lists() {
    let place = Place::with_script(
        "call todo {\"items\": [{\"text\": \"bake\"}]}\n\
         call file_edit {\"path\": \"a.txt\", \"old\": \"tea\", \"new\": \"green tea\"}\n\
         call file_grep {\"pattern\": \"gr+een\", \"glob\": \"*.txt\"}\n\
         call fetch {\"url\": \"http://127.1:1/\"}\n\
         call fetch {\"url\": \"https://example.com/\"}\n---\n\
         say {{result 0}}\nsay {{result 1}}\nsay {{result 2}}\nsay {{result 3}}\nsay {{result 4}}",
    );
    std::fs::create_dir(place.path().join("notes")).unwrap();
    place.write("notes/a.txt", "a cup of tea\n");
    check(
        &place,
        "name = \"all\"\nbuiltin = [\"todo\", \"fetch\"]\nfiles = \"notes\"\n[fetch]\nallow = [\"*.example.org\"]\n",
        &expect![[r#"
            {"items":[{"state":"open","text":"bake"}]}
            {"replaced":1}
            {"found":[{"line":1,"path":"a.txt","text":"a cup of green tea"}],"more":false}
            error egress.denied: `http://127.0.0.1:1/` is not reached: this address is on this machine
            error egress.denied: `https://example.com/` is not reached: only these hosts are allowed: *.example.org
        "#]],
    );
    assert_eq!(std::fs::read_to_string(place.path().join("notes/a.txt")).unwrap(), "a cup of green tea\n");
}

#[test]
fn fetch_loads_pages_from_allowed_hosts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4_096];
        let read = stream.read(&mut request).unwrap();
        let page = "<title>Tea</title><p>Best served <b>hot</b>.</p>";
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
        stream.write_all(format!("{head}{page}").as_bytes()).unwrap();
        String::from_utf8_lossy(&request[..read]).lines().next().map(str::to_owned)
    });
    let url = format!("http://127.0.0.1:{port}/tea?cups=2");
    let place = Place::with_script(&format!(
        "call fetch {{\"url\": \"{url}\"}}\n---\nsay {{{{result fetch /status}}}} {{{{result fetch /text}}}}"
    ));
    let agent = format!("name = \"reader\"\n[fetch]\nprivate = [\"127.0.0.1:{port}\"]\n");
    check(
        &place,
        &agent,
        &expect![[r#"
        200 Tea
        Best served hot.
    "#]],
    );
    assert_eq!(server.join().unwrap().as_deref(), Some("GET /tea?cups=2 HTTP/1.1"));
}
