//! The smallest proxy on the `zeromq` crate: a ROUTER and a DEALER for each request channel, SUB and PUB
//! for iopub. Every message is verified with one key and signed with the other.

use std::path::Path;

use nb::wire::{Channel, ConnectionInfo, SigningKey, Unverified};
use zeromq::util::PeerIdentity;
use zeromq::{
    DealerSocket, PubSocket, RouterSocket, Socket, SocketOptions, SocketRecv, SocketSend,
    SubSocket, ZmqMessage,
};

/// Serves until the process is killed.
pub async fn serve(front: &Path, kernel: &Path) {
    let (front, kernel) = (super::process::read(front), super::process::read(kernel));
    let asked = [Channel::Shell, Channel::Control, Channel::Stdin];
    for channel in asked {
        tokio::spawn(requests(front.clone(), kernel.clone(), channel));
    }
    tokio::spawn(heartbeat(front.clone(), kernel.clone()));
    iopub(front, kernel).await;
}

async fn requests(front: ConnectionInfo, kernel: ConnectionInfo, channel: Channel) {
    let (mut clients, mut own) = sockets(&front, &kernel, channel).await;
    loop {
        tokio::select! {
            Ok(message) = clients.recv() => {
                if let Some(message) = resigned(message, &front.key, &kernel.key) {
                    let _ = own.send(message).await;
                }
            }
            Ok(message) = own.recv() => {
                if let Some(message) = resigned(message, &kernel.key, &front.key) {
                    let _ = clients.send(message).await;
                }
            }
        }
    }
}

async fn heartbeat(front: ConnectionInfo, kernel: ConnectionInfo) {
    let (mut clients, mut own) = sockets(&front, &kernel, Channel::Heartbeat).await;
    loop {
        tokio::select! {
            Ok(message) = clients.recv() => drop(own.send(message).await),
            Ok(message) = own.recv() => drop(clients.send(message).await),
        }
    }
}

async fn iopub(front: ConnectionInfo, kernel: ConnectionInfo) {
    let mut clients = PubSocket::new();
    let endpoint = front.endpoint(Channel::Iopub).to_string();
    clients.bind(&endpoint).await.expect("bind");
    let mut own = SubSocket::new();
    let endpoint = kernel.endpoint(Channel::Iopub).to_string();
    own.connect(&endpoint).await.expect("connect");
    own.subscribe("").await.expect("subscribe");
    while let Ok(message) = own.recv().await {
        if let Some(message) = resigned(message, &kernel.key, &front.key) {
            let _ = clients.send(message).await;
        }
    }
}

/// A kernel sends stdin requests only to identities that it knows from shell, so all sockets have the same
/// identity.
async fn sockets(
    front: &ConnectionInfo,
    kernel: &ConnectionInfo,
    channel: Channel,
) -> (RouterSocket, DealerSocket) {
    let mut options = SocketOptions::default();
    let identity: PeerIdentity = "proxy".parse().expect("an identity");
    options.peer_identity(identity);
    let mut own = DealerSocket::with_options(options);
    let endpoint = kernel.endpoint(channel).to_string();
    own.connect(&endpoint).await.expect("connect");
    let mut clients = RouterSocket::new();
    let endpoint = front.endpoint(channel).to_string();
    clients.bind(&endpoint).await.expect("bind");
    (clients, own)
}

fn resigned(message: ZmqMessage, from: &SigningKey, to: &SigningKey) -> Option<ZmqMessage> {
    let message = from.verify(Unverified::parse(message.into_vec()).ok()?);
    ZmqMessage::try_from(message.ok()?.into_frames(to)).ok()
}
