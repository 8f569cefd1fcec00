//! Following the kernel: what becomes of it is read from `state.json` and from its process.

use std::rc::Rc;
use std::sync::Arc;

use super::LOCKS_WITHIN;
use super::bound::Bound;
use super::links::Links;
use super::shell::Shell;
use super::start::Pending;
use super::storage::Turn;
use super::target::{Found, LiveKernel, Look};
use super::words;
use crate::kernel::process::Process;
use crate::lifecycle::death::note_death;
use crate::route::{ClientId, Ending, FrontEnd, Kernel};
use crate::wire::{Channel, Verified};

/// What no kernel has got, to be sent to the next one.
type Unsent = Vec<(ClientId, Channel, Verified)>;

impl Shell {
    /// Looks at `state.json` and the kernel's process again, soon.
    pub(super) fn look_again(&self) {
        self.look.notify_one();
    }

    /// Follows the kernel to what it is now, soon: once for all who ask until then.
    pub(super) fn refresh_soon(&self) {
        if !self.refresh_waits.replace(true) {
            self.spawn(async |shell| shell.refresh().await);
        }
    }

    /// Follows the kernel to what it is now.
    pub(super) async fn refresh(&self) {
        let turn = self.state_work.turn().await;
        self.refresh_waits.set(false);
        let Some(bound) = self.bound() else { return };
        let looks = self.looks.get();
        let look = self.look_closely(&bound, &turn).await;
        let is_served = self.bound().is_some_and(|now| Rc::ptr_eq(&now, &bound));
        if looks != self.looks.get() {
            // The state was read on this thread since: this may be older.
            self.look_again();
        } else if is_served {
            self.take_look(&bound, look);
        }
    }

    /// Follows the kernel to what it is at this moment, where there is none: a request is not answered with
    /// an error that was true a moment ago, and nothing else passes that would wait for the files.
    pub(super) fn refresh_before_an_error(&self) {
        let is_ended = matches!(self.bridge.borrow().kernel(), Kernel::Ended(_));
        if let Some(bound) = self.bound().filter(|_| is_ended)
            && !bound.is_unreachable.get()
        {
            self.looks.update(|looks| looks + 1);
            self.take_look(&bound, bound.target.look_closely());
        }
    }

    fn take_look(&self, bound: &Bound, look: anyhow::Result<Look>) {
        match look {
            Ok(look) => {
                bound.note(&look);
                // The removal of a record does not end its kernel.
                if matches!(look.found, Found::None(_)) && self.kernel_lives() && !look.is_recorded
                {
                    let key = &bound.target.key;
                    let text = format!("{key} is no longer written down, its kernel lives");
                    return bound.unread.is("removed", &text);
                }
                bound.unread.is_over("the kernel's record is read again");
                self.adopt(look.found);
            }
            // What is known stays true until something better can be read.
            Err(error) => {
                let text = format!("{error:#}");
                bound.unread.is(&text, &text);
            }
        }
    }

    /// Reads what is known of the kernel; writes down that it has exited unexpectedly, where no one else has.
    async fn look_closely(&self, bound: &Bound, turn: &Turn<'_>) -> anyhow::Result<Look> {
        let read = async || {
            let target = bound.target.clone();
            turn.run(move || target.look_closely()).await?
        };
        let mut look = read().await?;
        if bound.pending.get() == Pending::Nothing
            && let Some((owner, session)) = look.unnoticed.take()
        {
            // In whose cell it died is read in the journal.
            let _ = tokio::time::timeout(LOCKS_WITHIN, bound.journal.written()).await;
            let project = bound.target.project.clone();
            let noted = turn.run(move || note_death(&project, &owner, session));
            match noted.await.map_err(Into::into).and_then(|it| Ok(it?)) {
                Ok(_) => bound.unwritten.is_over("the kernel's end is written down"),
                Err::<_, anyhow::Error>(error) => {
                    let text = format!("the kernel's end could not be written down: {error:#}");
                    bound.unwritten.is("the end", &text);
                }
            }
            look = read().await?;
        }
        Ok(look)
    }

    fn kernel_lives(&self) -> bool {
        let links = self.links.borrow();
        let process = links
            .as_ref()
            .and_then(|links| links.kernel().process.as_ref());
        process.is_some_and(|process| process.is_alive())
    }

    /// Returns whether a kernel is being started or restarted.
    pub(super) fn is_awaited(&self) -> bool {
        *self.bridge.borrow().kernel() == Kernel::Awaited
    }

    /// Returns whether anybody wants to hear the kernel.
    ///
    /// The requests of one that is restarted or shut down have had their end when it is
    /// interrupted for that; one that went by itself is heard to the last word.
    pub(super) fn listens(&self) -> bool {
        matches!(
            self.bridge.borrow().kernel(),
            Kernel::Live { .. } | Kernel::Died(_)
        )
    }

    /// Takes what the kernel is now.
    pub(super) fn adopt(&self, found: Found) {
        let Some(bound) = self.bound() else { return };
        if !bound.pending.get().admits(&found) {
            return;
        }
        let before = self.links.borrow().clone();
        match found {
            Found::Live(kernel) => {
                bound.failure.take();
                let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
                let same = before
                    .as_ref()
                    .is_some_and(|links| links.kernel().is_same(&kernel));
                if !(live && same) {
                    self.connect(&bound, *kernel, before.as_deref());
                }
            }
            Found::Awaited => {
                if self.is_awaited() {
                    return;
                }
                tracing::info!("the kernel is being started; requests wait for it");
                self.change(
                    Kernel::Awaited,
                    &words::replaced(&bound.target),
                    before.as_ref(),
                );
            }
            Found::Died(ended) => {
                let (target, ended) = (&bound.target, ended.as_ref());
                let failure = bound.failure.borrow().clone();
                let kernel = if self.may_start_again(&bound) && self.has_person() {
                    Kernel::Died(failure.unwrap_or_else(|| words::died_for_now(target, ended)))
                } else {
                    Kernel::Ended(failure.unwrap_or_else(|| words::died(target, ended)))
                };
                self.end(kernel, before.as_ref());
            }
            Found::None(ending) => {
                let failure = bound.failure.borrow().clone();
                let ending = match failure {
                    Some(failure) if !bound.is_recorded.get() => failure,
                    _ => ending,
                };
                self.end(Kernel::Ended(ending), before.as_ref());
            }
        }
    }

    /// Returns whether a person runs the cells, who reads what is gone with a kernel that died: of VS
    /// Code, a Jupyter server, a console on a terminal.
    fn has_person(&self) -> bool {
        let on_terminal = || self.parent.as_ref().is_some_and(Process::has_terminal);
        match self.origin.front_end {
            FrontEnd::VsCode | FrontEnd::Jupyter => true,
            FrontEnd::Other => on_terminal() && !self.bridge.borrow().is_batch(),
        }
    }

    /// Takes the end of the kernel.
    fn end(&self, kernel: Kernel, before: Option<&Rc<Links>>) {
        if *self.bridge.borrow().kernel() == kernel {
            return;
        }
        if let Kernel::Died(ending) | Kernel::Ended(ending) = kernel.clone() {
            tracing::warn!("{}", ending.text);
            self.change(kernel, &ending, before);
        }
    }

    fn change(&self, kernel: Kernel, ending: &Ending, before: Option<&Rc<Links>>) {
        if let Some(bound) = self.bound() {
            bound.keep.kernel_ended(self.published());
        }
        let unsent = take_unsent(before.map(Rc::as_ref));
        self.route(|bridge, now| bridge.kernel_is(now, kernel, ending, unsent));
    }

    fn connect(&self, bound: &Bound, kernel: LiveKernel, before: Option<&Links>) {
        bound.is_unreachable.set(false);
        let unsent = take_unsent(before);
        let is_another = before.is_some_and(|links| !links.kernel().is_same(&kernel));
        // Another kernel may count its lives from anew, as where a notebook begins to share one;
        // the bridge's numbers only ever rise.
        let last = self.number.get();
        let number = if before.is_some() && !is_another {
            last
        } else {
            kernel.generation.max(last + 1)
        };
        self.number.set(number);
        if is_another || (number != last && last > 0) {
            self.count.restarted();
        }
        if is_another || number != last {
            bound.keep.kernel_ended(self.published());
        }
        let notebook = &bound.target.key;
        bound
            .journal
            .follow(number, &kernel.owner, kernel.generation, notebook);
        tracing::info!(
            generation = kernel.generation,
            pid = kernel.process.as_ref().map(|process| process.pid),
            "connects to the kernel at {}",
            kernel.connection.endpoint(Channel::Shell)
        );
        if is_another || bound.missed.take() {
            let owner = before.map(|links| &*links.kernel().owner);
            let notice = words::notice(&bound.target, &kernel, owner);
            tracing::info!("{notice}");
            self.bridge.borrow_mut().set_notice(notice);
        } else if before.is_none()
            && self.origin.front_end == FrontEnd::VsCode
            && let Some(job) = &kernel.handed_over
        {
            let notice = words::handed_over(job);
            tracing::info!("{notice}");
            self.bridge.borrow_mut().set_notice(notice);
        }
        if let Some(process) = kernel.process.clone() {
            let look = Arc::clone(&self.look);
            tokio::task::spawn_local(async move {
                process.death().await;
                look.notify_one();
            });
        }
        let live = Kernel::Live {
            generation: number,
            interrupt: kernel.interrupt,
            info: kernel.info.clone(),
        };
        let widgets = kernel.widgets.clone();
        let links = Links::connect(kernel, self.id.clone(), &self.me);
        *self.links.borrow_mut() = Some(Rc::new(links));
        let ending = words::replaced(&bound.target);
        self.route(|bridge, now| {
            // First, since the probe may be among what is held.
            bridge.set_widgets(widgets);
            bridge.kernel_is(now, live, &ending, unsent);
        });
    }

    /// Writes down what this life of the kernel has told, for proxies that find it busy.
    pub(super) fn remember_widgets(&self, version: String) {
        let links = self.links.borrow();
        let (Some(bound), Some(links)) = (self.bound(), &*links) else {
            return;
        };
        let kernel = links.kernel();
        let (owner, generation) = (kernel.owner.clone(), kernel.generation);
        self.spawn(async move |shell| {
            let turn = shell.state_work.turn().await;
            let target = bound.target.clone();
            let written = turn.run(move || target.remember_widgets(&owner, generation, &version));
            let written: anyhow::Result<()> =
                written.await.map_err(Into::into).and_then(|it| Ok(it?));
            if let Err(error) = written {
                tracing::warn!("the version of ipywidgets was not written down: {error:#}");
            }
        });
    }

    /// The kernel's iopub is connected.
    pub(super) fn reached(&self) {
        let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
        if live {
            self.route(|bridge, now| bridge.iopub_up(now));
        } else {
            self.look_again();
        }
    }

    /// A kernel of which only the sockets are known does not answer on them.
    pub(super) fn unreachable(&self, error: &std::io::Error) {
        let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
        if let Some(bound) = self.bound().filter(|_| live) {
            let links = self.links.borrow();
            let process = links
                .as_ref()
                .and_then(|links| links.kernel().process.clone());
            drop(links);
            let pid = process.map(|process| process.pid);
            bound.is_unreachable.set(true);
            self.adopt(Found::None(words::unreachable(&bound.target, error, pid)));
        }
    }
}

fn take_unsent(links: Option<&Links>) -> Unsent {
    links.map(Links::take_unsent).unwrap_or_default()
}
