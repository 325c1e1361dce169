package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
)

// Leases of shards, as valid in a config: the default, and the longest.
const (
	lease    = 30 * time.Second
	maxLease = 10 * time.Minute
)

// held is what an election record says of who may lead.
type held struct {
	Holder        string `json:"holder"`
	LeaseDuration string `json:"lease_duration"`
	Released      bool   `json:"released"`
	Successor     string `json:"successor"` // who takes it then
	etag          object.ETag
}

// patience returns how long the record may stay as it is while a server runs that leads, or will. A standby takes
// an abandoned one a tenth of the lease after its end, and one that was released after less than half of the lease, as the
// server does that released it because its term ended. They poll every few seconds.
func (h held) patience() time.Duration {
	d, err := time.ParseDuration(h.LeaseDuration)
	if err != nil || d <= 0 || d > maxLease {
		d = lease
	}
	if h.Released && h.Successor == "" {
		return d/2 + 5*time.Second
	}
	return d + d/10 + 5*time.Second
}

// unrecorded returns how long the leader of a shard may leave its election record missing, by the shard's config in a backup.
func unrecorded(objects Objects, shard string) time.Duration {
	h := held{LeaseDuration: maxLease.String()}
	for _, part := range []string{"applied/", "config/"} {
		text := objects[part+shard+".jsonc"]
		if _, rest, err := config.CutHeader(text); err == nil {
			text = rest
		}
		if c, err := config.ParseAccepted(text); err == nil {
			h.LeaseDuration = time.Duration(c.Server.LeaderElection.LeaseDuration).String()
		}
	}
	return h.patience()
}

// leaders returns the election records of some shards, or of all, by shard.
func leaders(ctx context.Context, store object.Store, shards []string) (map[string]held, error) {
	infos, err := object.All(ctx, store, "leader/")
	if err != nil {
		return nil, err
	}
	all := map[string]held{}
	for _, i := range infos {
		shard := Shard(i.Key)
		if len(shards) > 0 && !slices.Contains(shards, shard) {
			continue
		}
		o, err := store.Get(ctx, i.Key)
		if errors.Is(err, object.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", i.Key, err)
		}
		var h held
		if json.Unmarshal(o.Body, &h) != nil { // which no server takes as long as it is there
			h = held{Holder: "unknown"}
		}
		h.etag = o.ETag
		all[shard] = h
	}
	return all, nil
}

// ErrRunning means that a server of the cluster runs.
var ErrRunning = errors.New("a server runs")

// Stopped is a look at whether any server leads.
type Stopped struct {
	shards []string // all, if there are none
	before map[string]held
}

// AwaitStopped waits until it is clear that no server leads shards of a backup: for as long as election records may stay
// as they are otherwise. It calls waits before it does. A shard with a leader is an error. A server that can't
// lead, since it does not reach the storage, for example, is not noticed.
func AwaitStopped(ctx context.Context, store object.Store, objects Objects, s Selection, waits func(time.Duration)) (*Stopped, error) {
	before, err := leaders(ctx, store, s.Shards)
	if err != nil {
		return nil, err
	}
	var wait time.Duration
	for _, h := range before {
		wait = max(wait, h.patience())
	}
	for _, shard := range objects.Of(s.Shards).Shards() {
		if _, recorded := before[shard]; !recorded { // whose leader would write it again
			wait = max(wait, unrecorded(objects, shard))
		}
	}
	stopped := &Stopped{s.Shards, before}
	if wait == 0 {
		return stopped, nil
	}
	if end, ends := ctx.Deadline(); ends && time.Until(end) < wait {
		return nil, fmt.Errorf("--timeout leaves no time for the wait of %s that shows that no server leads", wait)
	}
	waits(wait)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(wait):
	}
	return stopped, stopped.Still(ctx, store)
}

// Still returns an error if a server has led since.
func (s *Stopped) Still(ctx context.Context, store object.Store) error {
	now, err := leaders(ctx, store, s.shards)
	if err != nil {
		return err
	}
	for shard, h := range now {
		if h.etag != s.before[shard].etag {
			return fmt.Errorf("%w: %s leads shard %s, or has just led it: stop all servers whose shards are put back", ErrRunning, h.Holder, shard)
		}
	}
	return nil
}
