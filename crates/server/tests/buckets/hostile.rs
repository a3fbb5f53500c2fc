//! Servers that never come to an end, or stop in the middle: what the bridge reads of them is bounded, in bytes and in time.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// What it does once it has answered that the bucket is empty, and taken its mark.
#[derive(Clone, Copy)]
enum Manner {
    /// Content, and listings, that never end.
    Endless,
    /// A few bytes of content, and then nothing.
    Silent,
    /// Content that ends too early.
    Short,
}

const HEAD: &str = "HTTP/1.1 206 Partial Content\r\nlast-modified: Wed, 18 Nov 2026 07:00:00 GMT\r\netag: \"x\"\r\n\
                    content-range: bytes 0-99/100\r\n";

async fn server(manner: Manner) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let head = String::from_utf8(head).unwrap();
                let (is_range, is_list) = (head.contains("range: "), head.contains("list-type"));
                let answer = match (head.split(' ').next().unwrap(), manner) {
                    ("PUT", _) => {
                        // The mark; its answer may come before its body has arrived.
                        "HTTP/1.1 200 OK\r\netag: \"x\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
                    }
                    ("GET", Manner::Silent | Manner::Short) if is_range => {
                        format!("{HEAD}content-length: 100\r\n\r\n0123456789")
                    }
                    ("GET", Manner::Endless) if is_range => {
                        format!("{HEAD}content-length: 1000000000000\r\n\r\n")
                    }
                    ("GET", Manner::Endless) if is_list => {
                        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<ListBucketResult>".to_owned()
                    }
                    _ => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                        .to_owned(),
                };
                let _ = stream.write_all(answer.as_bytes()).await;
                match manner {
                    Manner::Endless if is_range || is_list => {
                        let piece = vec![b'x'; MIB];
                        while stream.write_all(&piece).await.is_ok() {}
                    }
                    Manner::Silent if is_range => {
                        let _ = stream.read_to_end(&mut Vec::new()).await;
                    }
                    _ => {
                        // Whatever the client still sends is read, so that it gets the answer.
                        let _ = stream.shutdown().await;
                        let _ = stream.read_to_end(&mut Vec::new()).await;
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test]
#[ignore = "needs credentials in the environment: cargo xtask test buckets"]
async fn what_never_ends_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let data = Arc::new(DataDir::open(dir.path()).unwrap());
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(data.clone(), None).await.unwrap());
    store.create_chat(CHAT, at(1)).await.unwrap();
    let row = FileRow {
        id: "0f".repeat(16),
        chat_id: CHAT.id.clone(),
        user: ALICE,
        media_type: "text/plain".into(),
        bytes: 100,
        name: None,
        created: at(1),
    };
    store.add_file(&row).await.unwrap();
    for manner in [Manner::Endless, Manner::Silent, Manner::Short] {
        let config = bucket("s3://chats", &server(manner).await);
        // A listing without an end is no listing: the bridge starts without files.
        let files = Files::open_configured(&config, &data, store.clone(), LIMIT);
        let files = files.await.unwrap();
        let mut read = files.read(&row, 0..row.bytes).await.unwrap();
        match manner {
            Manner::Endless => {
                let read: Vec<Bytes> = read.try_collect().await.unwrap();
                assert_eq!(read.concat(), [b'x'; 100]);
                let swept = files.sweep(now()).await;
                assert!(matches!(swept, Err(FileError::Unavailable)), "{swept:?}");
            }
            Manner::Silent => {
                assert_eq!(read.next().await.unwrap().unwrap(), "0123456789");
                assert!(read.next().await.unwrap().is_err());
            }
            Manner::Short => {
                let read: Result<Vec<Bytes>, _> = read.try_collect().await;
                assert!(read.is_err());
                let whole = files.content(&ALICE, &row.id).await;
                assert!(matches!(whole, Err(FileError::Unavailable)), "{whole:?}");
            }
        }
    }
}
