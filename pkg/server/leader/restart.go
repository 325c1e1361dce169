package leader

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/nstance/nstance/pkg/config"
)

// bootField is a part of the config that a process uses as of its start, whatever the config
// says later.
type bootField struct {
	name string
	of   func(*config.Shard) any // a pointer to the field
	// ends reports whether a server ends, to be restarted, instead of taking over with another
	// value. If false, it runs on with the value it was started with.
	ends func(boot, now *config.Shard) bool
}

func always(_, _ *config.Shard) bool { return true }
func never(_, _ *config.Shard) bool  { return false }

// addressMoves reports whether the provider moves the leader's address, or is to: a provider
// that was opened with another address would take that one while it leads.
func addressMoves(boot, now *config.Shard) bool {
	return boot.Server.LeaderNetwork.InterfaceID != "" || now.Server.LeaderNetwork.InterfaceID != ""
}

func bootFields() []bootField {
	return []bootField{
		{"cluster.id", func(c *config.Shard) any { return &c.Cluster.ID }, always},
		{"cluster.secrets", func(c *config.Shard) any { return &c.Cluster.Secrets }, always},
		{"server.provider", func(c *config.Shard) any { return &c.Server.Provider }, always},
		{"server.bind", func(c *config.Shard) any { return &c.Server.Bind }, always},
		{"server.advertise", func(c *config.Shard) any { return &c.Server.Advertise }, never},
		{"server.leader_network", func(c *config.Shard) any { return &c.Server.LeaderNetwork }, addressMoves},
	}
}

// restartFields returns the fields that differ between the config a process was started with
// and another one, and that can't change at run time. ending are those that keep a server from
// taking over.
func restartFields(boot, now *config.Shard) (fields, ending []string) {
	b, n := plainAdvertise(boot), plainAdvertise(now)
	for _, f := range bootFields() {
		if reflect.DeepEqual(f.of(b), f.of(n)) {
			continue
		}
		if fields = append(fields, f.name); f.ends(boot, now) {
			ending = append(ending, f.name)
		}
	}
	return fields, ending
}

// plainAdvertise clears the advertised addresses that repeat the bound ones, so that a change
// of a bound address does not look like a change of both.
func plainAdvertise(c *config.Shard) *config.Shard {
	plain := *c
	bind, advertise := reflect.ValueOf(plain.Server.Bind), reflect.ValueOf(&plain.Server.Advertise).Elem()
	for i := range advertise.NumField() {
		if advertise.Field(i).Equal(bind.Field(i)) {
			advertise.Field(i).SetZero()
		}
	}
	return &plain
}

// withBootFields returns now with all fields that can't change at run time taken from boot.
func withBootFields(boot, now *config.Shard) *config.Shard {
	kept, b := *now, *boot
	for _, f := range bootFields() {
		reflect.ValueOf(f.of(&kept)).Elem().Set(reflect.ValueOf(f.of(&b)).Elem())
	}
	return &kept
}

// ErrRestart says that a server has to restart to run the current config.
var ErrRestart = errors.New("it must be restarted to run it")

// ReadFor is Read for a process that was started with boot. The error is ErrRestart if the
// process may not take over with the config.
func (c *Static) ReadFor(ctx context.Context, boot *config.Shard) (Accepted, error) {
	read, err := c.Read(ctx)
	if err != nil {
		return Accepted{}, &PartError{PartConfig, err}
	}
	if _, ending := restartFields(boot, read.shard); len(ending) > 0 {
		return Accepted{}, fmt.Errorf("the config of %s changed since this server started: %w", strings.Join(ending, ", "), ErrRestart)
	}
	return read, nil
}
