//! What the control account may do, from SHOW GRANTS. The lines hold a password hash: they are read and dropped.

/// Rights that orders need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Sees the sessions of others (PROCESS), which the identity check needs.
    pub process: bool,
    /// Ends the sessions of others (CONNECTION ADMIN, or SUPER).
    pub kill: bool,
}

impl Rights {
    /// From the lines of SHOW GRANTS, which include those of the default role.
    pub(crate) fn from_grants<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut rights = Self::default();
        for line in lines {
            let line = line.to_ascii_uppercase();
            let Some((list, _)) = line
                .strip_prefix("GRANT ")
                .and_then(|rest| rest.split_once(" ON *.* TO "))
            else {
                continue;
            };
            for privilege in list.split(',').map(str::trim) {
                match privilege {
                    "ALL PRIVILEGES" => {
                        rights = Self {
                            process: true,
                            kill: true,
                        }
                    }
                    "PROCESS" => rights.process = true,
                    "CONNECTION ADMIN" | "SUPER" => rights.kill = true,
                    _ => {}
                }
            }
        }
        rights
    }

    pub(crate) fn enough(self) -> bool {
        self.process && self.kill
    }

    /// For a person.
    pub(crate) fn lack(self) -> &'static str {
        match (self.process, self.kill) {
            (false, false) => "may neither see nor end the sessions of others",
            (false, true) => "may not see the sessions of others",
            (true, false) => "may not end the sessions of others",
            (true, true) => "lacks nothing",
        }
    }
}

/// The next step for whoever lacks rights.
pub(crate) fn hint(account: &str) -> String {
    format!(
        "as an administrator of the server run: GRANT PROCESS, CONNECTION ADMIN ON *.* TO {account}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_come_from_the_account_its_role_or_all_privileges() {
        let both = Rights {
            process: true,
            kill: true,
        };
        assert_eq!(
            Rights::from_grants([
                "GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"
            ]),
            both
        );
        assert_eq!(
            Rights::from_grants([
                "GRANT PROCESS, SUPER ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*1'"
            ]),
            both
        );
        assert_eq!(
            Rights::from_grants([
                "GRANT `opr` TO `a`@`%`",
                "GRANT USAGE ON *.* TO `a`@`%`",
                "GRANT PROCESS, CONNECTION ADMIN ON *.* TO `opr`"
            ]),
            both
        );
    }

    #[test]
    fn rights_on_one_schema_are_not_enough() {
        let rights = Rights::from_grants([
            "GRANT USAGE ON *.* TO `a`@`%`",
            "GRANT ALL PRIVILEGES ON `shop`.* TO `a`@`%`",
        ]);
        assert_eq!(rights, Rights::default());
        assert!(!rights.enough());
    }
}
