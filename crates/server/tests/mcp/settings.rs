//! Configurations that cannot be used: each is refused by name.

use adk_bridge_testkit::refused;

#[test]
fn what_cannot_be_used_is_named() {
    let server = |keys: &str| format!("[[tools.mcp]]\nname = \"mine\"\n{keys}\n");
    let two = server("command = \"true\"") + &server("command = \"true\"");
    let cases = [
        (
            server("command = \"no-such-program\""),
            "tools.mcp \"mine\": \"no-such-program\" cannot be started",
        ),
        (server(""), "tools.mcp \"mine\": write the command"),
        (
            server("command = \"a\"\nurl = \"http://b\""),
            "tools.mcp \"mine\": command, url: write one",
        ),
        (
            server("command = \"\""),
            "tools.mcp \"mine\": command: name a program",
        ),
        (
            server("url = \"localhost\""),
            "tools.mcp \"mine\": url: write the address",
        ),
        (
            server("url = \"http://a\"\nargs = [\"b\"]"),
            "tools.mcp \"mine\": args, env: only a command",
        ),
        (
            server("command = \"a\"\nheaders = { b = \"c\" }"),
            "tools.mcp \"mine\": headers: only a url",
        ),
        (
            server("url = \"http://a\"\nheaders = { accept = \"c\" }"),
            "tools.mcp \"mine\": headers: \"accept\"",
        ),
        (
            server("command = \"a\"\napproval = \"sometimes\""),
            "unless-read-only",
        ),
        (server("comand = \"a\""), "comand"),
        (two, "tools.mcp: two servers have the name \"mine\""),
        (
            "[[tools.mcp]]\nname = \"a__b\"\ncommand = \"true\"\n".to_owned(),
            "tools.mcp \"a__b\": name: write letters",
        ),
        (
            server("command = \"true\"") + "[agent]\nkind = \"adk\"\napp = \"a\"\n",
            "tools.mcp: no agent can be offered these tools",
        ),
        (
            server("command = \"true\"") + "[agent]\nmay_ask = false\ntools = [\"mine__*\"]\n",
            "the tool \"mine__*\" needs approval",
        ),
        (
            server("command = \"true\"") + "[[agent.client_tools]]\nname = \"mine__x\"\n",
            "the tool \"mine__x\" begins with \"mine__\"",
        ),
    ];
    for (toml, said) in cases {
        let refusal = refused(&toml, |_| {});
        assert!(refusal.contains(said), "{toml}\n{refusal}");
    }
}

#[test]
fn secrets_are_not_quoted() {
    let cases = [
        "[[tools.mcp]]\nname = \"mine\"\nurl = \"http://a\"\nheaders = { a = [\"hunter2hunter2\"] }\n",
        "[[tools.mcp]]\nname = \"mine\"\ncommand = \"a\"\nenv = { a = { b = \"hunter2hunter2\" } }\n",
        "[[tools.mcp]]\nname = \"mine\"\ncommand = \"a\"\nargs = \"hunter2hunter2\"\n",
        "[[tools.mcp]]\nname = \"mine\"\nurl = \"hunter2hunter2\"\n",
    ];
    for toml in cases {
        let refusal = refused(toml, |_| {});
        assert!(!refusal.contains("hunter2"), "{toml}\n{refusal}");
        assert!(refusal.contains("tools.mcp"), "{toml}\n{refusal}");
    }
}
