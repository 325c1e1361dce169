package roster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
)

// read reads an operator's record; concurrent callers share one read. The error is of kind
// CertificateRevoked, or tells why the record can't be read.
func (r *Roster) read(ctx context.Context, who name) error {
	result := r.looks.DoChan(who.tenant+"/"+string(who.id), func() (any, error) {
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
		defer cancel()
		return nil, r.readNow(shared, who)
	})
	select {
	case done := <-result:
		return done.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Roster) readNow(ctx context.Context, who name) error {
	read, key := r.nextRead(), fleet.OperatorKey(who.tenant, who.id)
	found, err := r.cfg.Store.Get(ctx, key)
	switch {
	case errors.Is(err, object.ErrNotFound):
		return r.note(who, read, absent, "")
	case err != nil:
		return err
	}
	o, err := r.decode(who, key, found.Body)
	gone, err := r.removed(ctx, who, o, err)
	switch {
	case err != nil:
		return err
	case gone:
		return r.note(who, read, removed, found.ETag)
	}
	err = r.note(who, read, allowed, found.ETag)
	if err == nil && r.finds(who, o) {
		r.cfg.Found(ctx, o)
	}
	return err
}

// removed reports whether an operator was removed, according to its record, or the error that it
// could not be decoded with, or its tombstone.
// Removal writes the tombstone first and the record second, and they are read in the opposite
// order, so a removal in progress is seen in either, or was not yet done when the read began.
// A damaged record does not hide the tombstone.
func (r *Roster) removed(ctx context.Context, who name, o fleet.Operator, damage error) (bool, error) {
	if damage == nil && o.RemovedAt != nil {
		return true, nil
	}
	key := fleet.OperatorTombstoneKey(who.tenant, who.id)
	found, err := r.cfg.Store.Get(ctx, key)
	if errors.Is(err, object.ErrNotFound) {
		return false, damage
	}
	if err != nil {
		return false, err
	}
	o, err = r.decode(who, key, found.Body)
	if err != nil {
		return false, errors.Join(damage, err)
	}
	if o.RemovedAt != nil {
		return true, nil
	}
	return false, damage
}

// decode decodes an operator's record or tombstone.
func (r *Roster) decode(who name, key string, body []byte) (fleet.Operator, error) {
	body, err := r.cfg.Seal.Open(key, body)
	if err != nil {
		return fleet.Operator{}, fmt.Errorf("read operator record %s: %w", key, err)
	}
	o, _, err := record.Decode[fleet.Operator](body)
	if err == nil {
		err = o.Check(who.tenant, who.id)
	}
	if err == nil {
		err = record.CheckNumber("rev", o.Rev)
	}
	if err != nil {
		return fleet.Operator{}, fmt.Errorf("read operator record %s: %w", key, err)
	}
	return o, nil
}

// Run rereads the records of active operators until ctx ends.
func (r *Roster) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for there := true; there; {
			if retry.Wait(ctx, Interval) != nil {
				return
			}
			there = r.round(ctx)
		}
	}
}

// round rereads the records of active operators, and returns false if there are none.
func (r *Roster) round(ctx context.Context) (ok bool) {
	there := r.there()
	if len(there) == 0 {
		return false
	}
	within, cancel := context.WithTimeout(ctx, Interval)
	defer cancel()
	if err := r.compare(within, there); err != nil && ctx.Err() == nil {
		r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "can't read operator records, using their last known state", slog.Any("error", err))
	}
	return true
}

// there returns the known record versions of active operators: those with open streams or
// calls since the last round. The records of others are read at their next call.
func (r *Roster) there() map[name]object.ETag {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := map[name]object.ETag{}
	for who, m := range r.members {
		if m.watched = m.watched && (m.called || m.streams > 0); m.watched {
			there[who] = m.etag
		}
		m.called = false
	}
	return there
}

// compare reads records that have changed, are not listed, or have a tombstone: a listing
// alone does not refuse an operator. An error on one record does not stop the others.
func (r *Roster) compare(ctx context.Context, there map[name]object.ETag) error {
	infos, err := object.All(ctx, r.cfg.Store, fleet.OperatorPrefix)
	if err != nil {
		return err
	}
	now := make(map[string]object.ETag, len(infos))
	for _, i := range infos {
		now[i.Key] = i.ETag
	}
	var failed []error
	for who, etag := range there {
		_, gone := now[fleet.OperatorTombstoneKey(who.tenant, who.id)]
		if is := now[fleet.OperatorKey(who.tenant, who.id)]; is != "" && is == etag && !gone {
			continue
		}
		switch err := r.read(ctx, who); {
		case errors.Is(err, rpc.CertificateRevoked):
			r.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "operator revoked",
				slog.String("operator", string(who.id)), slog.String("tenant", who.tenant), slog.Any("reason", err))
		case err != nil:
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
