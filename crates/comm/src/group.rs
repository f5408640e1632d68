//! Groups of ranks: the members of a communicator and their order.

use crate::error::{Error, Result};
use crate::tag::{Key, Kind, Purpose, Tag, WORLD};

/// The members of a communicator, in the order of their ranks in it.
pub(crate) struct Group {
    id: u16,
    /// Rank of this process in the group.
    rank: usize,
    /// World rank of every member.
    members: Vec<usize>,
    /// Host of every member; `None` for the world, whose hosts may be exchanged after it was opened.
    hosts: Option<Vec<String>>,
}

impl Group {
    /// Returns the group of all `size` ranks, for the process with world rank `rank`.
    pub(crate) fn world(rank: usize, size: usize) -> Self {
        Group { id: WORLD, rank, members: (0..size).collect(), hosts: None }
    }

    /// Returns a group of some members of this one. `hosts`: those of this group.
    ///
    /// Returns an error if `id` is that of the world, or if `members` repeats a rank, contains a rank that is not in
    /// this group, or omits this rank.
    pub(crate) fn subgroup(&self, members: &[usize], id: u16, hosts: &[String]) -> Result<Self> {
        let invalid = |problem: String| Error::Group { id, problem };
        if id == WORLD {
            return Err(invalid(format!("id {WORLD} is that of the world communicator")));
        }
        for (i, &rank) in members.iter().enumerate() {
            if rank >= self.size() {
                return Err(invalid(format!("rank {rank} does not exist among {} ranks", self.size())));
            }
            if members[..i].contains(&rank) {
                return Err(invalid(format!("rank {rank} is listed twice")));
            }
        }
        let rank = members.iter().position(|&rank| rank == self.rank);
        let rank = rank.ok_or_else(|| invalid(format!("this rank ({}) is not listed", self.rank)))?;
        let hosts = members.iter().filter_map(|&rank| hosts.get(rank).cloned()).collect();
        let members = members.iter().map(|&rank| self.members[rank]).collect();
        Ok(Group { id, rank, members, hosts: Some(hosts) })
    }

    /// Returns whether this is the group of all ranks.
    pub(crate) fn is_world(&self) -> bool {
        self.id == WORLD
    }

    /// Returns the rank of this process in the group.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of members.
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns the world rank of every member.
    pub(crate) fn members(&self) -> &[usize] {
        &self.members
    }

    /// Returns the host of every member; `None` for the world.
    pub(crate) fn hosts(&self) -> Option<&[String]> {
        self.hosts.as_deref()
    }

    /// Returns the world rank of a rank of this group.
    ///
    /// # Panics
    /// If there is no such rank.
    pub(crate) fn world_rank(&self, rank: usize) -> usize {
        assert!(rank < self.size(), "rank {rank} is not one of {}", self.size());
        self.members[rank]
    }

    /// Returns the ranks in this group of all members except this one.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.size()).filter(move |&rank| rank != own)
    }

    /// Returns the key of a message within this group.
    pub(crate) fn key(&self, kind: Kind, tag: Tag) -> Key {
        Key { group: self.id, kind, tag }
    }

    /// Returns the key of an internal message within this group.
    pub(crate) fn control(&self, kind: Kind) -> Key {
        self.key(kind, Tag::new(Purpose::Control))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_nested_groups_are_world_ranks() {
        let hosts: Vec<String> = (0..6).map(|rank| format!("node{rank}")).collect();
        let odd = Group::world(3, 6).subgroup(&[1, 3, 5], 7, &hosts).unwrap();
        assert_eq!((odd.rank(), odd.size(), odd.members()), (1, 3, &[1, 3, 5][..]));
        let reversed = odd.subgroup(&[2, 1], 8, odd.hosts().unwrap()).unwrap();
        assert_eq!((reversed.rank(), reversed.members()), (1, &[5, 3][..]));
        assert_eq!(reversed.hosts().unwrap(), ["node5", "node3"]);
        assert_eq!(reversed.others().collect::<Vec<_>>(), [0]);
        assert_eq!(reversed.control(Kind::Facts).group, 8);
    }

    #[test]
    fn invalid_members_are_errors() {
        for (members, id, problem) in [
            (&[0, 1][..], WORLD, "world communicator"),
            (&[0, 4], 1, "rank 4 does not exist among 4 ranks"),
            (&[0, 1, 0], 1, "rank 0 is listed twice"),
            (&[1, 2], 1, "this rank (0) is not listed"),
            (&[], 1, "this rank (0) is not listed"),
        ] {
            let error = Group::world(0, 4).subgroup(members, id, &[]).map(drop).unwrap_err().to_string();
            assert!(error.contains(&format!("group {id}: ")) && error.contains(problem), "{error}");
        }
    }
}
