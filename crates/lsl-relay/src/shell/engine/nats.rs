//! A connection to a NATS server. Spec: relay §12.3.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, HeaderMap, RequestErrorKind,
};
use lsl_core::relay::{Either, select2};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::jetstream::Server;
use super::redis::{ConnectionId, secret};
use super::tls::Tls;
use crate::config::EngineConfig;
use crate::engine::jetstream::{self, Request};
use crate::engine::{Address, EngineError, ErrorKind, Result};

/// Connection that many tasks use at a time. It is made when it is first needed, and makes itself anew.
#[derive(Debug)]
pub(super) struct Nats {
    address: Address,
    user: Option<String>,
    /// With a user a password; else a token, a seed of nkeys, or credentials as `nsc` writes them.
    secret: Option<Zeroizing<String>>,
    tls: Option<Tls>,
    client: AsyncMutex<Option<Client>>,
    health: Arc<watch::Sender<Health>>,
}

#[derive(Debug, Clone, Default)]
struct Health {
    /// Number of the last connection, and whether it is there.
    connection: ConnectionId,
    is_up: bool,
    /// Last error of the server, which names a subject that it refuses.
    refusal: String,
    /// Why there is no connection.
    cause: String,
}

impl Nats {
    /// Prepares a connection, and reads the files that it needs.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if a file cannot be used.
    pub(super) fn new(config: &EngineConfig) -> Result<Self> {
        Ok(Self {
            address: config.address.clone(),
            user: config.user.clone(),
            secret: secret(config)?,
            tls: Tls::of(config)?,
            client: AsyncMutex::default(),
            health: Arc::default(),
        })
    }

    /// Returns the connection, which is made now if there never was one.
    async fn client(&self) -> Result<Client> {
        let mut client = self.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let connecting = self.options()?.connect(self.url());
        let made = match timeout(LIMIT, connecting).await {
            Ok(made) => made.map_err(|error| self.refused(&error))?,
            Err(_) => return Err(self.retry("does not answer")),
        };
        jetstream::check_payload(made.max_payload())?;
        // It says so a moment later.
        let mut health = self.health.subscribe();
        let _ = timeout(LIMIT, health.wait_for(|it| it.is_up)).await;
        Ok(client.insert(made).clone())
    }

    fn options(&self) -> Result<ConnectOptions> {
        let health = Arc::clone(&self.health);
        let options = ConnectOptions::new()
            .name("lsl relay")
            .connection_timeout(LIMIT)
            // Servers of a cluster may have names that only they know.
            .ignore_discovered_servers()
            .event_callback(move |event| {
                health.send_modify(|health| health.note(event));
                std::future::ready(())
            });
        let secret = self.secret.as_deref().map_or("", String::as_str);
        let line = secret.lines().next().unwrap_or_default();
        let options = match &self.user {
            Some(user) => options.user_and_password(user.clone(), line.to_owned()),
            None if line.is_empty() => options,
            None if secret.contains("BEGIN NATS USER JWT") => {
                let wrong = |error| format!("password_file: {error}");
                let options = options.credentials(secret);
                options.map_err(|error| EngineError::new(ErrorKind::Denied, wrong(error)))?
            }
            None if line.len() == SEED_LEN && line.starts_with("SU") => {
                options.nkey(line.to_owned())
            }
            None => options.token(line.to_owned()),
        };
        Ok(match &self.tls {
            Some(tls) => options.require_tls(true).tls_client_config(tls.client()),
            None => options,
        })
    }

    fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "tls" } else { "nats" };
        format!("{scheme}://{}", self.address)
    }

    fn retry(&self, text: &str) -> EngineError {
        EngineError::new(ErrorKind::Retry, format!("{} {text}", self.address))
    }

    /// Says why there is no connection.
    fn refused(&self, error: &ConnectError) -> EngineError {
        let source = std::error::Error::source(error);
        let cause = source.map_or_else(|| error.to_string(), ToString::to_string);
        let is_invalid = source.and_then(|it| it.downcast_ref::<std::io::Error>());
        let is_invalid = is_invalid.is_some_and(|it| it.kind() == std::io::ErrorKind::InvalidData);
        let kind = match error.kind() {
            ConnectErrorKind::Authentication
            | ConnectErrorKind::AuthorizationViolation
            | ConnectErrorKind::ServerParse
            | ConnectErrorKind::Tls => ErrorKind::Denied,
            _ if is_invalid => ErrorKind::Denied,
            _ => ErrorKind::Retry,
        };
        EngineError::new(kind, format!("cannot connect to {}: {cause}", self.address))
    }
}

impl Health {
    fn note(&mut self, event: Event) {
        match event {
            Event::Connected => {
                self.connection += 1;
                self.is_up = true;
                self.cause.clear();
            }
            Event::Disconnected | Event::Closed => self.is_up = false,
            Event::ServerError(error) => self.refusal = error.to_string(),
            Event::ClientError(error) => self.cause = error.to_string(),
            Event::LameDuckMode | Event::Draining | Event::SlowConsumer(_) => {}
        }
    }

    fn refuses(&self, subject: &str) -> bool {
        // Replies come to inboxes.
        [subject, "_INBOX"]
            .iter()
            .any(|it| self.refusal.contains(it))
    }
}

impl Server for Nats {
    async fn request(&self, request: Request) -> Result<Vec<u8>> {
        let client = self.client().await?;
        let subject = request.subject;
        let mut health = self.health.subscribe();
        if health.borrow().refuses(&subject) {
            self.health.send_modify(|it| it.refusal.clear());
        }
        let now = health.borrow_and_update().clone();
        let lost = |cause: &str| self.retry(&format!("is not connected {cause}"));
        if !now.is_up {
            return Err(lost(&now.cause));
        }
        let mut asked = async_nats::Request::new()
            .timeout(Some(LIMIT))
            .payload(request.payload.into());
        if !request.headers.is_empty() {
            let mut headers = HeaderMap::new();
            for (name, value) in request.headers {
                headers.insert(name, value);
            }
            asked = asked.headers(headers);
        }
        let asked = client.send_request(subject.clone(), asked);
        let is_lost = |it: &Health| !it.is_up || it.connection != now.connection;
        let doubted = health.wait_for(|it| is_lost(it) || it.refuses(&subject));
        let error = match select2(asked, doubted).await {
            Either::First(Ok(reply)) => return Ok(reply.payload.into()),
            Either::First(Err(error)) => error,
            Either::Second(doubted) => {
                let health = doubted.map(|it| it.clone()).unwrap_or_default();
                return Err(if is_lost(&health) {
                    lost(&health.cause)
                } else {
                    EngineError::new(ErrorKind::Denied, health.refusal)
                });
            }
        };
        Err(match error.kind() {
            RequestErrorKind::NoResponders => jetstream::unanswered(&subject),
            RequestErrorKind::TimedOut => self.retry("does not answer"),
            RequestErrorKind::MaxPayloadExceeded => {
                let text = format!(
                    "max_payload of the server is {}, too small: {error}",
                    client.max_payload()
                );
                EngineError::new(ErrorKind::Denied, text)
            }
            RequestErrorKind::InvalidSubject | RequestErrorKind::Other => {
                // Its task has ended: another one is made.
                *self.client.lock().await = None;
                self.health.send_modify(|it| it.is_up = false);
                lost(&error.to_string())
            }
        })
    }

    fn connection(&self) -> Option<ConnectionId> {
        let health = self.health.borrow();
        health.is_up.then_some(health.connection)
    }
}

/// How long a reply and a connection may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Characters of a seed of nkeys.
const SEED_LEN: usize = 58;
