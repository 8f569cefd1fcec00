//! A bare client: a shell DEALER, and an iopub SUB that is always read.

use std::time::{Duration, Instant};

use bytes::Bytes;
use nb::wire::{Channel, ConnectionInfo, NewHeader, Unverified, Verified};
use serde::{Deserialize, Serialize};
use serde_json::json;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

/// The content of a `flood_request`: the number of iopub messages, and the size of each.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Flood {
    pub messages: usize,
    pub bytes: usize,
    /// Whether the bytes are an unsigned buffer after the content, instead of a stream's text.
    pub in_buffer: bool,
}

/// The kernel that sends a flood.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flooder {
    Fake,
    Ipykernel,
}

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

    /// Connects, and returns as soon as iopub messages arrive; `timeout` is how long they may take after a
    /// reply.
    pub async fn connect_within(info: &ConnectionInfo, timeout: Duration) -> Self {
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
            client.send("kernel_info_request", &json!({}), None).await;
            client.reply().await;
            if tokio::time::timeout(timeout, client.iopub.recv())
                .await
                .is_ok()
            {
                return client;
            }
        }
    }

    /// Connects only shell, and returns once kernel_info is answered.
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

    async fn send(
        &mut self,
        msg_type: &str,
        content: &impl serde::Serialize,
        buffer: Option<Bytes>,
    ) {
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
        let mut frames = message.into_frames(&self.info.key);
        frames.extend(buffer);
        let frames = ZmqMessage::try_from(frames).expect("frames");
        self.shell.send(frames).await.expect("send");
    }

    async fn reply(&mut self) {
        let own = self.last();
        loop {
            let message = self.shell.recv().await.expect("a reply");
            if self.verified(message).parent().expect("readable").msg_id == own {
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

    /// Makes `count` round trips of about 1 KB one after another; returns the time of each.
    pub async fn round_trips(&mut self, count: usize) -> Vec<Duration> {
        let content = json!({ "padding": "1".repeat(800) });
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.send("kernel_info_request", &content, None).await;
            times.push(self.answered().await - start);
        }
        times
    }

    /// Runs code as front ends do, and waits for its end.
    pub async fn execute(&mut self, code: &str) {
        self.send("execute_request", &cell(code), None).await;
        self.answered().await;
    }

    /// Sends a buffer to a comm that sends it back; returns how long that took.
    pub async fn echo(&mut self, comm: &str, bytes: usize) -> Duration {
        let buffer = Bytes::from(vec![b'x'; bytes]);
        let start = Instant::now();
        let content = json!({ "comm_id": comm, "data": {} });
        self.send("comm_msg", &content, Some(buffer)).await;
        loop {
            let message = self.iopub.recv().await.expect("iopub");
            let message = self.verified(message);
            if message.buffers().iter().any(|buffer| buffer.len() == bytes) {
                return start.elapsed();
            }
        }
    }

    /// Opens a comm in ipykernel that sends back what it receives.
    pub async fn open_echo(&mut self) -> String {
        self.execute(
            "def opened(comm, _):\n    comm.on_msg(lambda said: comm.send({}, buffers=said['buffers']))\n\
             get_ipython().kernel.comm_manager.register_target('echo', opened)",
        )
        .await;
        let comm = uuid::Uuid::new_v4().simple().to_string();
        let content = json!({ "comm_id": comm, "target_name": "echo", "data": {} });
        self.send("comm_open", &content, None).await;
        comm
    }

    /// Waits for the reply to the last request and for the kernel's idle after it; returns when the reply
    /// came.
    async fn answered(&mut self) -> Instant {
        let own = self.last();
        let (mut replied, mut idle) = (None, false);
        loop {
            // Front ends wait for both, too; iopub is read all the time.
            if let Some(replied) = replied.filter(|_| idle) {
                return replied;
            }
            tokio::select! {
                message = self.shell.recv() => {
                    let message = self.verified(message.expect("a reply"));
                    if message.parent().expect("readable").msg_id == own {
                        replied = Some(Instant::now());
                    }
                }
                message = self.iopub.recv() => {
                    let message = self.verified(message.expect("iopub"));
                    idle |= message.parent().is_ok_and(|parent| parent.msg_id == own)
                        && is_idle(message.content());
                }
            }
        }
    }

    /// Requests a flood from a kernel; returns how many of its messages came, and how long that took.
    pub async fn flood(&mut self, kernel: Flooder, flood: &Flood) -> (usize, Duration) {
        let start = Instant::now();
        if kernel == Flooder::Fake {
            self.send("flood_request", flood, None).await;
        } else {
            let Flood {
                messages, bytes, ..
            } = flood;
            let code = format!(
                "for i in range({messages}): print('x' * {}, flush=True)",
                bytes - 1
            );
            self.send("execute_request", &cell(&code), None).await;
        }
        let own = self.last();
        let mut came = 0;
        loop {
            let message = self.iopub.recv().await.expect("iopub");
            let message = self.verified(message);
            if message.parent().is_ok_and(|parent| parent.msg_id != own) {
                continue;
            }
            let header = message.header().expect("readable");
            match &*header.msg_type {
                "stream" if kernel == Flooder::Fake => came += flood.bytes,
                // A kernel may split or join lines, so bytes are counted.
                "stream" => {
                    let content: serde_json::Value =
                        serde_json::from_slice(message.content()).expect("JSON");
                    came += content["text"].as_str().map_or(0, str::len);
                }
                "status" if is_idle(message.content()) => break,
                _ => {}
            }
        }
        let took = start.elapsed();
        self.reply().await;
        (came / flood.bytes, took)
    }

    fn last(&self) -> String {
        format!("{}_{}", self.session, self.count)
    }

    fn verified(&self, message: ZmqMessage) -> Verified {
        let message = Unverified::parse(message.into_vec()).expect("whole");
        self.info.key.verify(message).expect("signed")
    }
}

fn is_idle(content: &[u8]) -> bool {
    content.windows(4).any(|word| word == b"idle")
}

fn cell(code: &str) -> serde_json::Value {
    json!({
        "code": code, "silent": false, "store_history": true, "user_expressions": {},
        "allow_stdin": false, "stop_on_error": true,
    })
}
