package leader

import (
	"bytes"
	"log/slog"
	"sync"

	"github.com/nstance/nstance/pkg/config"
)

// This file knows the config that was accepted before the running one, for rollouts that are aborted. It
// is in the header of applied/: one write accepts a config and keeps the one before.

// after returns a config with the text that was accepted before it.
func (c *Static) after(before config.Packed, next Accepted) Accepted {
	next.before = before
	next.earlier = sync.OnceValue(func() *config.Shard {
		if len(before) == 0 {
			return nil
		}
		text, err := before.Unpack()
		if err == nil {
			var shard *config.Shard
			if shard, err = c.check(config.ParseAccepted(text)); err == nil {
				return shard
			}
		}
		c.Logger.Warn("can't read the config before the present one", slog.String("key", appliedKey(c.Shard)), slog.Any("error", err))
		return nil
	})
	return next
}

// beforeOf returns the text that was accepted before a text, when this is the last accepted one or
// follows it.
func (c appliedConfig) beforeOf(text []byte) config.Packed {
	if c.shard == nil || bytes.Equal(c.body, text) {
		return c.before
	}
	return config.Pack(c.body)
}

// succeed returns a config that replaces the running one. If it builds all machines alike, the text
// before stays: what rolls out began with that.
func (a *acceptance) succeed(c Accepted) Accepted {
	now := a.config.now()
	before := now.before
	if !bytes.Equal(now.body, c.body) && !config.BuildsAlike(now.shard, c.shard, a.groups.Records()) {
		before = config.Pack(now.body)
	}
	return a.cfg.Static.after(before, c)
}

// earlier returns the config that was accepted before the running one; nil if it is not known.
func (r *running) earlier() *config.Shard {
	if earlier := r.now().earlier; earlier != nil {
		return earlier()
	}
	return nil
}
