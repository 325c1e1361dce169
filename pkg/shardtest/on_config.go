package shardtest

import "time"

// change writes another config into the store; it takes effect with a refresh, or when a
// server becomes leader.
func (s *Shard) change(do func(*Settings) error) error {
	c := s.settings
	if err := do(&c); err != nil {
		return err
	}
	return s.PutConfig(c)
}

func doConfigSize(s *Shard, a args) error {
	return s.change(func(c *Settings) error {
		switch a.words[0] {
		case "web":
			c.Web = a.count
		case "db":
			c.DB = a.count
		default:
			return nothing("the config has no group %s", a.words[0])
		}
		return nil
	})
}

// doConfigWithout removes one of the groups from the config, and restores the other one.
func doConfigWithout(s *Shard, a args) error { return s.changeName(a.words[0], false) }

// doConfigRenames renames one of the groups in the config.
func doConfigRenames(s *Shard, a args) error { return s.changeName(a.words[0], true) }

// doConfigRemoves removes one of the groups from the config, which says itself that this is meant.
func doConfigRemoves(s *Shard, a args) error {
	if err := s.changeName(a.words[0], false); err != nil {
		return err
	}
	return s.change(func(c *Settings) error { c.Listed = true; return nil })
}

// doConfigUnsets omits the size of one of the groups.
func doConfigUnsets(s *Shard, a args) error {
	return s.change(func(c *Settings) error { c.Unset = a.words[0]; return nil })
}

// doConfigSpare sets the size of a third group, which never gets a machine; with size 0 it is omitted.
func doConfigSpare(s *Shard, a args) error {
	return s.change(func(c *Settings) error { c.Spare = a.count; return nil })
}

func (s *Shard) changeName(group string, renamed bool) error {
	if group != "web" && group != "db" {
		return nothing("the config has no group %s", group)
	}
	return s.change(func(c *Settings) error { c.Without, c.Renamed, c.Listed = group, renamed, false; return nil })
}

// doConfigWhole restores both groups in the config, and omits the third.
func doConfigWhole(s *Shard, _ args) error {
	return s.change(func(c *Settings) error { c.whole(); return nil })
}

func doConfigType(s *Shard, a args) error {
	return s.change(func(c *Settings) error { c.InstanceType = a.words[0]; return nil })
}

func doConfigVar(s *Shard, a args) error {
	return s.change(func(c *Settings) error { c.Var = a.count; return nil })
}

func doConfigDrain(s *Shard, a args) error {
	return s.change(func(c *Settings) error { c.DrainTimeout = a.span; return nil })
}

func doConfigBroken(s *Shard, _ args) error {
	return s.change(func(c *Settings) error { c.Broken = true; return nil })
}

func doConfigMended(s *Shard, _ args) error {
	return s.change(func(c *Settings) error { c.Broken = false; return nil })
}

// doHeal ends every fault: all servers run and reach each other, the store and all agents, no
// request fails, and the config is valid and in effect.
func doHeal(s *Shard, _ args) error {
	s.plagues.heal()
	s.fair()
	if err := setClock(s); err != nil {
		return err
	}
	if err := s.bucket.restoreApplied(); err != nil {
		return err
	}
	err := s.change(func(c *Settings) error {
		c.whole()
		if c.Broken = false; c.InstanceType == rotten || c.InstanceType == unknownType {
			c.InstanceType = "small"
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := mend(s); err != nil {
		return err
	}
	s.operator.idle()
	s.refresh(5*time.Minute, true)
	sayAgain(s)
	s.operator.idle()
	return nil
}

// revive makes every server run and reach the store.
func (s *Shard) revive() {
	for _, v := range s.servers {
		v.reach(true)
		v.ails.heal()
		if v.alive() {
			v.life.disarm()
			v.resume()
		}
		if !v.alive() || v.asked {
			v.start()
		}
	}
}
