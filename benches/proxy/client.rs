//! A bare client: a shell DEALER and an iopub SUB that is always read.

use std::time::{Duration, Instant};

use bytes::Bytes;
use nb::wire::{Channel, ConnectionInfo, NewHeader, Unverified, Verified};
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

pub struct Client {
    info: ConnectionInfo,
    session: String,
    shell: DealerSocket,
    iopub: SubSocket,
    count: u64,
}

impl Client {
    /// Connects, and waits until iopub arrives and is quiet.
    pub async fn connect(info: &ConnectionInfo) -> Self {
        let mut client = Self::connect_within(info, Duration::from_millis(100)).await;
        client.drain().await;
        client
    }

    /// Connects, and returns as soon as iopub arrives; `patience` is how long it may take after a reply.
    pub async fn connect_within(info: &ConnectionInfo, patience: Duration) -> Self {
        let mut shell = DealerSocket::new();
        shell
            .connect(&info.endpoint(Channel::Shell).to_string())
            .await
            .expect("connect shell");
        let mut iopub = SubSocket::new();
        iopub
            .connect(&info.endpoint(Channel::Iopub).to_string())
            .await
            .expect("connect iopub");
        iopub.subscribe("").await.expect("subscribe");
        let session = uuid::Uuid::new_v4().simple().to_string();
        let mut client = Self {
            info: info.clone(),
            session,
            shell,
            iopub,
            count: 0,
        };
        loop {
            client.send("kernel_info_request", "", 0).await;
            client.reply().await;
            if tokio::time::timeout(patience, client.iopub.recv())
                .await
                .is_ok()
            {
                return client;
            }
        }
    }

    /// Connects shell alone and returns once kernel_info is answered.
    pub async fn first_reply(info: &ConnectionInfo) {
        let mut shell = DealerSocket::new();
        shell
            .connect(&info.endpoint(Channel::Shell).to_string())
            .await
            .expect("connect shell");
        // ipykernel drops a request whose bytes it has seen before, as a replay.
        let id = uuid::Uuid::new_v4().simple().to_string();
        let header = NewHeader {
            msg_id: &id,
            session: "launch",
            username: "bench",
            date: "2026-01-01T00:00:00Z",
            msg_type: "kernel_info_request",
        };
        let message = Verified::new(&header, Bytes::from_static(b"{}"), &serde_json::json!({}));
        let frames = ZmqMessage::try_from(message.into_frames(&info.key)).expect("frames");
        shell.send(frames).await.expect("send");
        shell.recv().await.expect("a reply");
    }

    async fn send(&mut self, msg_type: &str, code: &str, messages: usize) {
        let content = serde_json::json!({ "code": code, "silent": false, "store_history": false, "messages": messages, "bytes": code.len() });
        self.send_content(msg_type, &content).await;
    }

    async fn send_content(&mut self, msg_type: &str, content: &serde_json::Value) {
        self.count += 1;
        let id = format!("{}_{}", self.session, self.count);
        let header = NewHeader {
            msg_id: &id,
            session: &self.session,
            username: "bench",
            date: "2026-01-01T00:00:00Z",
            msg_type,
        };
        let message = Verified::new(&header, Bytes::from_static(b"{}"), content);
        let frames = ZmqMessage::try_from(message.into_frames(&self.info.key)).expect("frames");
        self.shell.send(frames).await.expect("send");
    }

    async fn reply(&mut self) {
        loop {
            let message = self.shell.recv().await.expect("a reply");
            let message = self
                .info
                .key
                .verify(Unverified::parse(message.into_vec()).expect("whole"))
                .expect("signed");
            let own = format!("{}_{}", self.session, self.count);
            if message.parent().expect("readable").msg_id == own {
                return;
            }
        }
    }

    async fn drain(&mut self) {
        while tokio::time::timeout(Duration::from_millis(20), self.iopub.recv())
            .await
            .is_ok()
        {}
    }

    /// Does `count` round trips of about 1 KB one after another; returns each one's time.
    pub async fn round_trips(&mut self, msg_type: &str, count: usize) -> Vec<Duration> {
        let code = "1".repeat(800);
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.send(msg_type, &code, 0).await;
            times.push(self.answered().await - start);
        }
        times
    }

    /// Runs code as front ends do, and waits for its end.
    pub async fn execute(&mut self, code: &str) {
        let content = serde_json::json!({
            "code": code, "silent": false, "store_history": true, "user_expressions": {},
            "allow_stdin": false, "stop_on_error": true,
        });
        self.send_content("execute_request", &content).await;
        self.answered().await;
    }

    /// Waits for the reply to what was sent last and for the kernel to be idle after it; returns when
    /// the reply came.
    async fn answered(&mut self) -> Instant {
        let own = format!("{}_{}", self.session, self.count);
        let (mut replied, mut idle) = (None, false);
        loop {
            // A front end, too, waits for both; iopub is read all the time.
            if let Some(replied) = replied.filter(|_| idle) {
                return replied;
            }
            tokio::select! {
                message = self.shell.recv() => {
                    if parent(&self.info, message.expect("a reply")) == own {
                        replied = Some(Instant::now());
                    }
                }
                message = self.iopub.recv() => {
                    idle |= is_idle(&self.info, message.expect("iopub"), &own);
                }
            }
        }
    }

    /// Asks for a flood and returns how many of its messages came, and how long it took.
    pub async fn flood(
        &mut self,
        kind: Flooder,
        messages: usize,
        bytes: usize,
    ) -> (usize, Duration) {
        let start = Instant::now();
        match kind {
            Flooder::Fake => {
                self.send("flood_request", &"x".repeat(bytes), messages)
                    .await;
            }
            Flooder::Ipykernel => {
                let code = format!(
                    "for i in range({messages}): print('x' * {}, flush=True)",
                    bytes - 1
                );
                self.send("execute_request", &code, 0).await;
            }
        }
        let own = format!("{}_{}", self.session, self.count);
        let mut came = 0; // bytes: a kernel may send a line in two parts
        loop {
            let frames = self.iopub.recv().await.expect("iopub").into_vec();
            // A stream's text may come in fewer messages than were printed: bytes count.
            let message = self
                .info
                .key
                .verify(Unverified::parse(frames).expect("whole"))
                .expect("signed");
            if message.parent().is_ok_and(|parent| parent.msg_id != own) {
                continue;
            }
            let header = message.header().expect("readable");
            match &*header.msg_type {
                "stream" => {
                    let content: serde_json::Value =
                        serde_json::from_slice(message.content()).expect("JSON");
                    came += content["text"].as_str().map_or(0, str::len);
                }
                "status" if message.content().windows(4).any(|word| word == b"idle") => break,
                _ => {}
            }
        }
        let took = start.elapsed();
        self.reply().await;
        (came / bytes, took)
    }
}

/// Which kernel floods.
#[derive(Clone, Copy)]
pub enum Flooder {
    Fake,
    Ipykernel,
}

fn parent(info: &ConnectionInfo, message: ZmqMessage) -> String {
    let message = info
        .key
        .verify(Unverified::parse(message.into_vec()).expect("whole"))
        .expect("signed");
    message.parent().expect("readable").msg_id.into_owned()
}

fn is_idle(info: &ConnectionInfo, message: ZmqMessage, own: &str) -> bool {
    let message = info
        .key
        .verify(Unverified::parse(message.into_vec()).expect("whole"))
        .expect("signed");
    message.parent().is_ok_and(|parent| parent.msg_id == own)
        && message.content().windows(4).any(|word| word == b"idle")
}
