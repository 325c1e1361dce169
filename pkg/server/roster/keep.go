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

// read reads an operator's record, once for all who ask at the same time. Its
// error is of kind CertificateRevoked, or says why the record can't be read.
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
	read, key := r.begin(), fleet.OperatorKey(who.tenant, who.id)
	found, err := r.cfg.Store.Get(ctx, key)
	switch {
	case errors.Is(err, object.ErrNotFound):
		return r.note(who, read, absent, "")
	case err != nil:
		return err
	}
	o, _, err := record.Decode[fleet.Operator](found.Body)
	if err == nil {
		err = o.Check(who.tenant, who.id)
	}
	if err == nil {
		err = record.CheckNumber("rev", o.Rev)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read operator record %s: %w", key, err)
	case o.RemovedAt != nil:
		return r.note(who, read, removed, found.ETag)
	default:
		return r.note(who, read, allowed, found.ETag)
	}
}

// Keep looks at the records of the operators that are there, until ctx ends.
func (r *Roster) Keep(ctx context.Context) {
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

// round looks at everybody who is there. Not ok: nobody is.
func (r *Roster) round(ctx context.Context) (ok bool) {
	there := r.there()
	if len(there) == 0 {
		return false
	}
	within, cancel := context.WithTimeout(ctx, Interval)
	defer cancel()
	if err := r.compare(within, there); err != nil && ctx.Err() == nil {
		r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "can't look at the records of operators, so what they said last holds", slog.Any("error", err))
	}
	return true
}

// there are the records, as they were last read, of the operators that have
// streams or have called since the last time. The others are left to their next
// call.
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

// compare reads the records that are not as they were, or not listed: a listing
// alone refuses nobody. One that can't be read keeps no other from it.
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
		if is := now[fleet.OperatorKey(who.tenant, who.id)]; is != "" && is == etag {
			continue
		}
		switch err := r.read(ctx, who); {
		case errors.Is(err, rpc.CertificateRevoked):
			r.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "an operator is refused from now on",
				slog.String("operator", string(who.id)), slog.String("tenant", who.tenant), slog.Any("reason", err))
		case err != nil:
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
