//! Which part of a program a function belongs to, by its name.

/// The allocator's functions in glibc.
const ALLOCATOR: [&str; 12] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "_int_malloc",
    "_int_free",
    "_int_realloc",
    "malloc_consolidate",
    "unlink_chunk",
    "posix_memalign",
    "tcache",
    "mallinfo",
];

/// The crate of a function, with up to two modules if it is one of this project's; what it does if it is written in C.
pub(crate) fn component(function: &str, object: &str) -> String {
    if let Some(path) = rust_path(function) {
        return of_path(path);
    }
    let library = object.rsplit('/').next().unwrap_or(object);
    if library.starts_with("libc.") || library.starts_with("libc-") || library.starts_with("ld-") {
        let does = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
        return if does(&ALLOCATOR) {
            "libc: memory"
        } else if function.contains("memcpy")
            || function.contains("memmove")
            || function.contains("memset")
        {
            "libc: copying"
        } else {
            "libc: other"
        }
        .to_owned();
    }
    if library.starts_with("lib") {
        return library.split('.').next().unwrap_or(library).to_owned();
    }
    if library.starts_with("adk-bridge") {
        // The libraries in C that it contains are SQLite and, for TLS, a little of ring.
        return "sqlite".to_owned();
    }
    library.to_owned()
}

/// The path in a demangled name: `<&tokio::net::Stream as Read>::read` is in `tokio::net::Stream`.
fn rust_path(function: &str) -> Option<&str> {
    let path = function.trim_start_matches(|c: char| !c.is_ascii_alphabetic() && c != '_');
    let path = ["mut ", "dyn ", "const "]
        .iter()
        .find_map(|word| path.strip_prefix(word))
        .unwrap_or(path);
    path.contains("::").then_some(path)
}

fn of_path(path: &str) -> String {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':';
    let path = path.split(is_end).next().unwrap_or(path);
    let mut names = path.split("::");
    let name = names.next().unwrap_or(path);
    if !name.starts_with("adk_bridge") {
        return name.to_owned();
    }
    let is_module = |name: &&str| name.starts_with(|c: char| c.is_ascii_lowercase());
    // The last name is that of the function, if it is not that of a type.
    let modules: Vec<&str> = names.take_while(is_module).collect();
    let is_function = path.split("::").all(|name| is_module(&name));
    let modules = match modules.as_slice() {
        [modules @ .., _] if is_function => modules,
        modules => modules,
    };
    let mut component = name.to_owned();
    for module in modules.iter().take(2) {
        component.push_str("::");
        component.push_str(module);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_belongs_to_its_crate_or_library() {
        for (function, object, expected) in [
            ("tokio::runtime::task::poll", "/x/adk-bridge", "tokio"),
            (
                "<hyper::body::Incoming as http_body::Body>::poll_frame",
                "/x/adk-bridge",
                "hyper",
            ),
            ("<&mut axum::Router<S> as X>::call", "/x/adk-bridge", "axum"),
            (
                "core::ptr::drop_in_place<adk_bridge::chat::engine::ReplyEngine>",
                "/x/adk-bridge",
                "core",
            ),
            (
                "adk_bridge::chat::engine::ReplyEngine::commit::{{closure}}",
                "/x/adk-bridge",
                "adk_bridge::chat::engine",
            ),
            (
                "<adk_bridge_protocol::driver::Driver as X>::feed",
                "/x/adk-bridge",
                "adk_bridge_protocol::driver",
            ),
            (
                "adk_bridge::store::sqlite::replies::commit",
                "/x/adk-bridge",
                "adk_bridge::store::sqlite",
            ),
            (
                "adk_bridge::serve::run",
                "/x/adk-bridge",
                "adk_bridge::serve",
            ),
            ("sqlite3VdbeExec", "/x/adk-bridge", "sqlite"),
            ("_int_malloc", "/lib/libc.so.6", "libc: memory"),
            ("__memcpy_avx_unaligned", "/lib/libc.so.6", "libc: copying"),
            ("epoll_wait", "/lib/libc.so.6", "libc: other"),
            ("ngx_epoll_process_events", "/usr/sbin/nginx", "nginx"),
            ("deflate", "/lib/libz.so.1", "libz"),
        ] {
            assert_eq!(component(function, object), expected, "{function}");
        }
    }
}
