//! Windows' firewall, as the registry has it. Rules are those of [MS-GPFAS] §2.2.2.19, settings those of §2.2.2.
//!
//! Nothing follows from a rule with a condition that is not known here, nor from one that holds in some of the
//! networks of this machine alone: which of them it is in the registry does not say.

use std::collections::BTreeSet;

use lsl_platform::registry::Data;

use crate::observe::{BlockedProgram, PortsInUse, Profile, Program, WindowsFirewall};

/// What of the machine has to be known; keys are those of `HKEY_LOCAL_MACHINE`, without what is not there.
pub trait Machine {
    /// Values of a key, with their names.
    fn values(&self, key: &str) -> Vec<(String, Data)>;
    /// Names of the keys below one.
    fn keys(&self, key: &str) -> Vec<String>;
    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;
}

/// Reads what concerns these programs, each with its path: of all, those that have ports of LSL, and the one that
/// looks.
pub fn read(
    machine: &dyn Machine,
    programs: &[(Program, String)],
    own_pid: u32,
    ports: &[PortsInUse],
) -> WindowsFirewall {
    let number = |key: &str, name: &str| {
        let values = machine.values(key);
        let value = values
            .into_iter()
            .find(|it| it.0.eq_ignore_ascii_case(name));
        match value {
            Some((_, Data::Number(number))) => Some(number),
            _ => None,
        }
    };
    let of_policy = |profile: Profile, name| {
        let mut keys = keys_of(profile).iter();
        keys.find_map(|it| number(&format!("{POLICY}\\{it}"), name))
    };
    let setting = |profile: Profile, name| {
        let mut keys = keys_of(profile).iter();
        let local = || keys.find_map(|it| number(&format!("{LOCAL}\\{it}"), name));
        of_policy(profile, name).or_else(local)
    };
    let with = |name, value| {
        let all = Profile::ALL.into_iter();
        all.filter(|it| setting(*it, name) == Some(value)).collect()
    };
    let networks = machine.keys(NETWORKS).into_iter().filter_map(|network| {
        Profile::of_category(number(&format!("{NETWORKS}\\{network}"), "Category")?)
    });
    let merges = |profile: &Profile| of_policy(*profile, "AllowLocalPolicyMerge") != Some(0);
    let mut blocked = Vec::new();
    for (place, is_local) in [(LOCAL, true), (POLICY, false)] {
        for (_, value) in machine.values(&format!("{place}\\FirewallRules")) {
            let Data::Text(text) = value else { continue };
            let Some(mut rule) = BlockRule::parse(&text).filter(|it| it.concerns(ports)) else {
                continue;
            };
            rule.profiles.retain(|it| !is_local || merges(it));
            if rule.profiles.is_empty() {
                continue;
            }
            let path = expanded(&rule.app, machine);
            let of_rule = programs
                .iter()
                .filter(|it| it.1.eq_ignore_ascii_case(&path));
            blocked.extend(of_rule.map(|(program, _)| BlockedProgram {
                program: program.clone(),
                app: rule.app.clone(),
                rule: rule.name.clone(),
                profiles: rule.profiles.clone(),
                is_self: program.pid == own_pid,
                is_tcp_alone: rule.protocol == Some(TCP),
                is_of_policy: !is_local,
            }));
        }
    }
    WindowsFirewall {
        networks: networks.collect(),
        filtered: with("EnableFirewall", 1),
        answers_refused: with("DisableUnicastResponsesToMulticastBroadcast", 1),
        blocked,
    }
}

/// An active rule that blocks what comes in for a program, whoever sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BlockRule {
    name: String,
    app: String,
    profiles: BTreeSet<Profile>,
    protocol: Option<u8>,
    /// All, if there are none.
    ports: Vec<(u16, u16)>,
}

impl BlockRule {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split('|');
        fields.next().filter(|it| it.starts_with("v2."))?;
        let mut rule = Self {
            name: String::new(),
            app: String::new(),
            profiles: BTreeSet::new(),
            protocol: None,
            ports: Vec::new(),
        };
        let (mut blocks, mut is_in, mut is_active) = (false, false, false);
        for field in fields.filter(|it| !it.is_empty()) {
            let (key, value) = field.split_once('=')?;
            match key {
                "Action" => blocks = value == "Block",
                "Dir" => is_in = value == "In",
                "Active" => is_active = value.eq_ignore_ascii_case("true"),
                "Profile" => drop(rule.profiles.insert(Profile::of_name(value)?)),
                "Protocol" => rule.protocol = Some(value.parse().ok()?),
                // Words, such as RPC, are not ports of ours.
                "LPort" | "LPort2_10" => {
                    let (first, last) = value.split_once('-').unwrap_or((value, value));
                    rule.ports.push((first.parse().ok()?, last.parse().ok()?));
                }
                "App" => value.clone_into(&mut rule.app),
                "Name" => value.clone_into(&mut rule.name),
                "Desc" | "EmbedCtxt" | "Edge" | "Defer" => {}
                _ => return None,
            }
        }
        if rule.profiles.is_empty() {
            rule.profiles.extend(Profile::ALL);
        }
        (blocks && is_in && is_active && !rule.app.is_empty()).then_some(rule)
    }

    /// Whether it is about ports of LSL.
    fn concerns(&self, ports: &[PortsInUse]) -> bool {
        let is_tcp_or_udp = self.protocol.is_none_or(|it| it == TCP || it == UDP);
        let mut own = ports.iter().flat_map(|it| it.udp());
        let overlaps = |own: (u16, u16)| {
            let mut all = self.ports.iter();
            self.ports.is_empty() || all.any(|it| it.0 <= own.1 && own.0 <= it.1)
        };
        is_tcp_or_udp && own.any(overlaps)
    }
}

/// Puts variables of the environment in their places.
fn expanded(path: &str, machine: &dyn Machine) -> String {
    let mut parts = path.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    while let Some(name) = parts.next() {
        text += &machine.variable(name).unwrap_or_default();
        text += parts.next().unwrap_or_default();
    }
    text
}

/// Keys of a profile's settings; that of private networks had another name once, and has it in the registry.
fn keys_of(profile: Profile) -> &'static [&'static str] {
    match profile {
        Profile::Domain => &["DomainProfile"],
        Profile::Private => &["PrivateProfile", "StandardProfile"],
        Profile::Public => &["PublicProfile"],
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const LOCAL: &str = r"SYSTEM\CurrentControlSet\Services\SharedAccess\Parameters\FirewallPolicy";
const POLICY: &str = r"SOFTWARE\Policies\Microsoft\WindowsFirewall";
/// Each network that the machine was in, with its category.
const NETWORKS: &str = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion\NetworkList\Profiles";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Profile::{Domain, Private, Public};

    /// A registry as `reg query /s` prints it, without types.
    struct Recorded(String);

    impl Recorded {
        fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
            let mut key = "";
            self.0.lines().map(str::trim).filter_map(move |line| {
                if let Some(begun) = line.strip_prefix("HKLM\\") {
                    key = begun;
                    return Some((key, ""));
                }
                (!line.is_empty()).then_some((key, line))
            })
        }
    }

    impl Machine for Recorded {
        fn values(&self, key: &str) -> Vec<(String, Data)> {
            let of_key = self.lines().filter(|it| it.0 == key && !it.1.is_empty());
            let values = of_key.map(|(_, line)| {
                let (name, value) = line.split_once(' ').unwrap();
                let number = value.strip_prefix("0x").map(|it| it.parse().unwrap());
                let text = || Data::Text(value.to_owned());
                (name.to_owned(), number.map_or_else(text, Data::Number))
            });
            values.collect()
        }

        fn keys(&self, key: &str) -> Vec<String> {
            let below = self.lines().filter(|it| it.1.is_empty());
            let below = below.filter_map(|it| it.0.strip_prefix(key)?.strip_prefix('\\'));
            below.map(str::to_owned).collect()
        }

        fn variable(&self, name: &str) -> Option<String> {
            (name == "ProgramFiles").then(|| r"C:\Program Files".into())
        }
    }

    /// A machine out of the box, at home, where other programs are blocked.
    const HEALTHY: &str = r"
        HKLM\SYSTEM\CurrentControlSet\Services\SharedAccess\Parameters\FirewallPolicy\StandardProfile
            EnableFirewall 0x1
            DisableNotifications 0x0
        HKLM\SYSTEM\CurrentControlSet\Services\SharedAccess\Parameters\FirewallPolicy\PublicProfile
            EnableFirewall 0x1
        HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion\NetworkList\Profiles\{A}
            ProfileName Home
            Category 0x1
        HKLM\SYSTEM\CurrentControlSet\Services\SharedAccess\Parameters\FirewallPolicy\FirewallRules
            CoreNet-DHCP-In v2.30|Action=Allow|Active=TRUE|Dir=In|Protocol=17|LPort=68|RPort=67|App=%SystemRoot%\system32\svchost.exe|Svc=dhcp|Name=@FirewallAPI.dll,-25301|
            {1} v2.30|Action=Block|Active=TRUE|Dir=In|Protocol=17|Profile=Private|App=C:\games\game.exe|Name=game.exe|
            {2} v2.30|Action=Allow|Active=TRUE|Dir=In|Protocol=6|App=C:\py\python.exe|Name=Python|
            {3} v2.30|Action=Block|Active=FALSE|Dir=In|Protocol=6|App=C:\py\python.exe|Name=Python|
            {4} v2.30|Action=Block|Active=TRUE|Dir=Out|Protocol=6|App=C:\py\python.exe|Name=Python|
            {5} v2.30|Action=Block|Active=TRUE|Dir=In|Protocol=6|LPort=8080|App=C:\py\python.exe|Name=Python|
            {6} v2.30|Action=Block|Active=TRUE|Dir=In|Protocol=6|RA4=203.0.113.0/255.255.255.0|App=C:\py\python.exe|Name=Python|
            {7} v2.30|Action=Block|Active=TRUE|Dir=In|Protocol=1|App=C:\py\python.exe|Name=Python|
            {8} no rule at all
        ";
    const RULES: &str = r"HKLM\SYSTEM\CurrentControlSet\Services\SharedAccess\Parameters\FirewallPolicy\FirewallRules";
    const BLOCK: &str = "{9} v2.30|Action=Block|Active=TRUE|Dir=In|Protocol=17|Profile=Private|Profile=Public|\
                         App=C:\\Py\\Python.exe|Name=python.exe|Desc=python.exe|Defer=User|";

    fn look(more: &str) -> WindowsFirewall {
        let program = |pid, path: &str| {
            let name = path.rsplit('\\').next().unwrap().to_owned();
            (Program { pid, name }, path.to_owned())
        };
        let programs = [
            program(7, r"C:\py\python.exe"),
            program(8, r"C:\Program Files\LabRecorder\LabRecorder.exe"),
        ];
        let recorded = Recorded(format!("{HEALTHY}\n{more}"));
        read(&recorded, &programs, 8, &[PortsInUse::default()])
    }

    #[test]
    fn rules_that_concern_programs_of_lsl() {
        let check = |more: &str, expected: &[(u32, &[Profile])]| {
            let found = look(more).blocked;
            let found: Vec<_> = (found.iter())
                .map(|it| (it.program.pid, it.profiles.iter().copied().collect()))
                .collect();
            let expected: Vec<_> = (expected.iter()).map(|it| (it.0, it.1.to_vec())).collect();
            assert_eq!(found, expected, "{more}");
        };
        check("", &[]);
        check(&format!("{RULES}\n{BLOCK}"), &[(7, &[Private, Public])]);
        let all = "{9} v2.10|Action=Block|Active=TRUE|Dir=In|App=%ProgramFiles%\\LabRecorder\\LabRecorder.exe|Name=x|";
        check(
            &format!("{RULES}\n{all}"),
            &[(8, &[Domain, Private, Public])],
        );
        let range = BLOCK.replace("Protocol=17", "Protocol=17|LPort2_10=16000-16571");
        check(&format!("{RULES}\n{range}"), &[(7, &[Private, Public])]);
        // Where a policy says that rules of the machine count for nothing, they do not.
        let policy = r"HKLM\SOFTWARE\Policies\Microsoft\WindowsFirewall";
        let alone =
            format!("{policy}\\PrivateProfile\nAllowLocalPolicyMerge 0x0\n{RULES}\n{BLOCK}");
        check(&alone, &[(7, &[Public])]);
        check(&alone.replace("|Profile=Public", ""), &[]);
        check(
            &format!("{policy}\\FirewallRules\n{BLOCK}"),
            &[(7, &[Private, Public])],
        );
    }

    #[test]
    fn rules_say_what_they_block_and_whose_they_are() {
        let of = |more: &str| {
            let found = look(more).blocked;
            let [it] = &found[..] else {
                panic!("{found:?}")
            };
            (it.is_self, it.is_tcp_alone, it.is_of_policy)
        };
        assert_eq!(of(&format!("{RULES}\n{BLOCK}")), (false, false, false));
        let tcp = BLOCK.replace("Protocol=17", "Protocol=6");
        assert_eq!(of(&format!("{RULES}\n{tcp}")), (false, true, false));
        let policy = r"HKLM\SOFTWARE\Policies\Microsoft\WindowsFirewall\FirewallRules";
        let own = BLOCK.replace(
            "C:\\Py\\Python.exe",
            "%ProgramFiles%\\LabRecorder\\LabRecorder.exe",
        );
        assert_eq!(of(&format!("{policy}\n{own}")), (true, false, true));
    }

    #[test]
    fn settings_of_policies_come_first() {
        let set = |all: &[Profile]| all.iter().copied().collect::<BTreeSet<_>>();
        let healthy = look("");
        assert_eq!(healthy.networks, set(&[Private]));
        assert_eq!(healthy.filtered, set(&[Private, Public]));
        assert_eq!(healthy.answers_refused, set(&[]));
        let managed = look(
            r"HKLM\SOFTWARE\Policies\Microsoft\WindowsFirewall\StandardProfile
                DisableUnicastResponsesToMulticastBroadcast 0x1
                EnableFirewall 0x0
            HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion\NetworkList\Profiles\{B}
                Category 0x0",
        );
        assert_eq!(managed.networks, set(&[Private, Public]));
        assert_eq!(managed.filtered, set(&[Public]));
        assert_eq!(managed.answers_refused, set(&[Private]));
    }
}
