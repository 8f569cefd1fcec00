//! The floor: bytes from one socket to the other, no ZMTP, no signature.

use std::path::Path;

use nb::wire::{Channel, ConnectionInfo};
use tokio::net::{TcpListener, TcpStream};

/// Pumps between the five ports of two connection files until the process is killed.
pub async fn pump(front: &Path, kernel: &Path) {
    let (front, kernel) = (super::process::read(front), super::process::read(kernel));
    let local = tokio::task::LocalSet::new();
    for channel in Channel::ALL {
        let listener = TcpListener::bind(address(&front, channel))
            .await
            .expect("bind");
        let kernel = address(&kernel, channel);
        local.spawn_local(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let kernel = kernel.clone();
                tokio::task::spawn_local(async move {
                    let mut kernel = TcpStream::connect(kernel).await.expect("connect");
                    client.set_nodelay(true).expect("nodelay");
                    kernel.set_nodelay(true).expect("nodelay");
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut kernel).await;
                });
            }
        });
    }
    local.await;
}

fn address(info: &ConnectionInfo, channel: Channel) -> String {
    info.endpoint(channel)
        .to_string()
        .trim_start_matches("tcp://")
        .to_owned()
}
