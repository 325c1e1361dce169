package shardtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// change puts another config into the store; it takes effect with a refresh, or
// when somebody takes the lead.
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

// doConfigWithout has the config without one of its groups; the other one is back.
func doConfigWithout(s *Shard, a args) error { return s.changeName(a.words[0], false) }

// doConfigRenames has one of the groups under another name.
func doConfigRenames(s *Shard, a args) error { return s.changeName(a.words[0], true) }

func (s *Shard) changeName(group string, renamed bool) error {
	if group != "web" && group != "db" {
		return nothing("the config has no group %s", group)
	}
	return s.change(func(c *Settings) error { c.Without, c.Renamed = group, renamed; return nil })
}

// doConfigWhole has the config with both groups.
func doConfigWhole(s *Shard, _ args) error {
	return s.change(func(c *Settings) error { c.Without, c.Renamed = "", false; return nil })
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

// groupsKey is the object of the default tenant's groups.
const groupsKey = "groups/" + shardID + "/" + fleet.DefaultTenant + ".jsonc"

// doGroupsLost removes the object of the default tenant's groups by hand.
func doGroupsLost(s *Shard, _ args) error {
	o, err := s.bucket.Get(context.Background(), groupsKey)
	if errors.Is(err, object.ErrNotFound) {
		return nothing("there are no groups")
	}
	if err != nil {
		return fmt.Errorf("get groups: %w", err)
	}
	s.lost = o.Body
	if err := s.bucket.Delete(context.Background(), groupsKey); err != nil {
		return fmt.Errorf("delete groups: %w", err)
	}
	return nil
}

// doGroupsBack puts the object back that was removed last, whatever is there.
func doGroupsBack(s *Shard, _ args) error {
	if s.lost == nil {
		return nothing("no groups were lost")
	}
	if _, err := s.bucket.Put(context.Background(), groupsKey, s.lost, object.Precondition{}); err != nil {
		return fmt.Errorf("put groups: %w", err)
	}
	return nil
}

// doHeal ends every fault: all servers run and reach each other, the store and
// all agents, nothing fails any more, and the config is valid and in effect.
func doHeal(s *Shard, _ args) error {
	s.fairWeather()
	s.fairListings()
	s.fairProvider()
	s.plagues.heal()
	s.network.HealAll()
	s.revive()
	time.Sleep(storeTimeout) // a request that a server dies after may be under way
	s.revive()
	err := s.change(func(c *Settings) error {
		c.Without, c.Renamed = "", false
		if c.Broken = false; c.InstanceType == rotten || c.InstanceType == unknownType {
			c.InstanceType = "small"
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.operator.idle()
	s.refresh(5*time.Minute, true)
	s.operator.idle()
	return nil
}

// revive has every server run, and reach the store.
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
