//! The lower bound: copies bytes from one socket to the other, without ZMTP and signatures.

use std::path::Path;

use nb::wire::{Channel, Endpoint};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// Copies between the five ports of two connection files until the process is killed.
pub async fn pump(front: &Path, kernel: &Path) {
    let (front, kernel) = (super::process::read(front), super::process::read(kernel));
    let local = tokio::task::LocalSet::new();
    for channel in Channel::ALL {
        let Endpoint::Tcp(address) = front.endpoint(channel) else {
            panic!("the client's side is TCP");
        };
        let listener = TcpListener::bind(address).await.expect("bind");
        let kernel = kernel.endpoint(channel);
        local.spawn_local(async move {
            while let Ok((client, _)) = listener.accept().await {
                client.set_nodelay(true).expect("nodelay");
                tokio::task::spawn_local(connect(client, kernel.clone()));
            }
        });
    }
    local.await;
}

async fn connect(client: TcpStream, kernel: Endpoint) {
    match kernel {
        Endpoint::Tcp(address) => {
            let kernel = TcpStream::connect(address).await.expect("connect");
            kernel.set_nodelay(true).expect("nodelay");
            copy(client, kernel).await;
        }
        Endpoint::Unix(path) => {
            let kernel = UnixStream::connect(path).await.expect("connect");
            copy(client, kernel).await;
        }
    }
}

async fn copy(mut client: TcpStream, mut kernel: impl AsyncRead + AsyncWrite + Unpin) {
    let _ = copy_bidirectional(&mut client, &mut kernel).await;
}
