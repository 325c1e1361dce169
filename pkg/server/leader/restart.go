package leader

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/nstance/nstance/pkg/config"
)

// bootField is a part of the config that a process runs as it was when it
// started, whatever the config says since.
type bootField struct {
	name string
	of   func(*config.Shard) any // a pointer to the field
	// ends: a server that takes over on another value ends, so that it is started
	// anew on it. With one that does not, it goes on as it was started, too.
	ends func(boot, now *config.Shard) bool
}

func always(_, _ *config.Shard) bool { return true }
func never(_, _ *config.Shard) bool  { return false }

// addressMoves reports whether the provider moves the leader's address, or is to: a
// provider that was opened with another one would take that for as long as it leads.
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

// restartFields names what differs between the config that a process was started
// on and another one, and can't be changed while it runs; ending are those of them on
// which a server may not take over.
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

// plainAdvertise leaves out of what is advertised the addresses that only repeat
// what is bound, so that a change of the one does not look like one of both.
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

// keepBoot returns now with the values of boot in all that a process can't change
// while it runs.
func keepBoot(boot, now *config.Shard) *config.Shard {
	kept, b := *now, *boot
	for _, f := range bootFields() {
		reflect.ValueOf(f.of(&kept)).Elem().Set(reflect.ValueOf(f.of(&b)).Elem())
	}
	return &kept
}

// Ineffective names what a config asks for and this build does not do yet.
func Ineffective(c *config.Shard) (fields []string) {
	if c.Server.Bind.Metrics != "" {
		fields = append(fields, "server.bind.metrics_addr")
	}
	return fields
}

// ErrRestart says that a server has to start anew to run the config that there is.
var ErrRestart = errors.New("it must start anew to run it")

// ReadFor is Read for a process that was started on boot. The error is ErrRestart
// when it may not take over on what there is.
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
