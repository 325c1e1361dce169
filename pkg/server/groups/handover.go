package groups

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// handOver carries the records of groups over to the next static config. The caller holds all
// turns.
type handOver struct {
	groups *Groups
	to     config.Succession
}

// carry makes the groups durable that outlive their static definition or template, or whose record
// the store lacks.
func (h handOver) carry(ctx context.Context) error {
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(maxEdits)
	for key, loses := range h.concerned() {
		writes.Go(func() error {
			err := h.groups.write(ctx, h.edit(key, loses, true))
			if errors.Is(err, config.ErrTooLarge) { // its machines keep their files
				err = h.groups.write(ctx, h.edit(key, loses, false))
			}
			return err
		})
	}
	return writes.Wait()
}

// concerned returns the groups whose record is to be written before the next config, and whether
// each loses its definition. If it does, the record has to be written in this term even if
// unchanged, so that no late write of an earlier leader replaces it. What holds a group has to be
// stored, because what is known of earlier configs, and held it, is lost with the next one.
func (h handOver) concerned() map[fleet.GroupKey]bool {
	concerned := map[fleet.GroupKey]bool{}
	for _, key := range h.groups.which(keptRecord.notStored) {
		concerned[key] = false
	}
	records := h.groups.Records()
	for _, past := range h.to.Before {
		for _, key := range past.StaticGroups() {
			if _, has := records[key]; !has {
				records[key] = config.GroupRecord{}
			}
			if _, is := h.to.Next.Static(key); !is {
				concerned[key] = true
			}
		}
	}
	for key, is := range records {
		after := h.to.KeepTemplate(key, h.to.Record(key, is))
		if _, known := concerned[key]; !known && !after.Same(is) {
			concerned[key] = false
		}
	}
	return concerned
}

// edit returns the edit of a group's record. It fails if the group loses its definition and the
// record can't be read: nothing would be left of the group.
func (h handOver) edit(key fleet.GroupKey, loses, keeps bool) edit {
	return edit{key: key, durable: loses, leaves: !loses, change: func(now groupNow) (config.GroupRecord, error) {
		r := h.to.Record(key, now.record)
		if keeps {
			r = h.to.KeepTemplate(key, r)
		}
		return r, nil
	}}
}

// CarryOver makes durable what groups need of the static configs in before, the most recent first,
// when next replaces them. It is idempotent. Instances that were found late are judged first, because
// next is what explains them afterwards. counted: all machines are known. The caller holds the lock of edits.
func (g *Groups) CarryOver(ctx context.Context, next *config.Shard, before []*config.Shard, counted bool) error {
	differ, err := judgeAnew(g)
	for _, key := range differ {
		Problems{g}.reportOne(key)
	}
	if err != nil {
		return err
	}
	return handOver{g, config.Succession{Next: next, Before: before, Now: g.cfg.Now(), Counted: counted}}.carry(ctx)
}
