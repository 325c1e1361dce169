package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/retry"
)

// Seal returns the seal of operators' records.
func Seal(ca *pki.CA) record.Seal { return record.NewSeal(ca.DeriveKey(fleet.OperatorSeal)) }

func (r *Registry) encode(key string, o fleet.Operator, unknown record.Unknown) ([]byte, error) {
	body, err := record.Encode(o, unknown)
	if err != nil {
		return nil, err
	}
	return r.cfg.Seal.Close(key, body)
}

// decode decodes the record or tombstone of an operator. Errors include the key.
func (r *Registry) decode(key, tenant string, id fleet.InstanceID, body []byte) (fleet.Operator, record.Unknown, error) {
	opened, err := r.cfg.Seal.Open(key, body)
	if err != nil {
		return fleet.Operator{}, record.Unknown{}, fmt.Errorf("read operator record %s: %w", key, err)
	}
	o, unknown, err := record.Decode[fleet.Operator](opened)
	if err == nil {
		err = o.Check(tenant, id)
	}
	if err == nil {
		err = record.CheckNumber("rev", o.Rev)
	}
	if err != nil {
		return fleet.Operator{}, record.Unknown{}, fmt.Errorf("read operator record %s: %w", key, err)
	}
	return o, unknown, nil
}

// operatorRecord is a record as read.
type operatorRecord struct {
	fleet.Operator
	unknown record.Unknown
	etag    object.ETag
}

// readOperator reads a record. Of a damaged one only the identity remains, which is in its key.
func (r *Registry) readOperator(ctx context.Context, tenant string, id fleet.InstanceID) (operatorRecord, error) {
	key := fleet.OperatorKey(tenant, id)
	found, err := r.cfg.Operators.Get(ctx, key)
	if err != nil {
		return operatorRecord{}, err
	}
	o, unknown, err := r.decode(key, tenant, id, found.Body)
	if err != nil {
		o, unknown = fleet.Operator{ID: id, Tenant: tenant}, record.Unknown{}
	}
	return operatorRecord{o, unknown, found.ETag}, nil
}

// readJudged reads a record, and the tombstone if entombed. It returns the zero record if the
// record was deleted externally. A damaged tombstone is ignored here.
func (r *Registry) readJudged(ctx context.Context, o fleet.Operator, entombed bool) (operatorRecord, error) {
	found, err := r.readOperator(ctx, o.Tenant, o.ID)
	if errors.Is(err, object.ErrNotFound) {
		return operatorRecord{}, nil
	}
	if err != nil || found.RemovedAt != nil || !entombed {
		return found, err
	}
	removed, err := r.readTombstone(ctx, o.Tenant, o.ID)
	switch {
	case err == nil:
		found.Operator = removed
	case errors.Is(err, record.ErrSeal), errors.Is(err, object.ErrNotFound):
		err = nil
	}
	return found, err
}

// readTombstone reads the tombstone of an operator. It returns object.ErrNotFound if there is
// none.
func (r *Registry) readTombstone(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Operator, error) {
	key := fleet.OperatorTombstoneKey(tenant, id)
	found, err := r.cfg.Operators.Get(ctx, key)
	if err != nil {
		return fleet.Operator{}, err
	}
	o, _, err := r.decode(key, tenant, id, found.Body)
	return o, err
}

// markRemoved marks an operator as removed: it writes the tombstone first, which no other record
// revokes, and then the record, unless both exist. Concurrent removals all return the one that
// wrote the tombstone.
func (r *Registry) markRemoved(ctx context.Context, tenant string, id, by fleet.InstanceID) (fleet.Operator, error) {
	audit.Wanted(ctx, audit.Done("removed"))
	for {
		was, err := r.readOperator(ctx, tenant, id)
		if err != nil {
			return fleet.Operator{}, err
		}
		o := was.Operator
		if was.RemovedAt == nil {
			o = was.Remove(by, r.cfg.Now())
		}
		tombstone, err := r.entomb(ctx, o)
		if err != nil || was.RemovedAt != nil {
			return was.Operator, err
		}
		o.RemovedAt, o.RemovedBy = tombstone.RemovedAt, tombstone.RemovedBy
		o = o.Written(r.cfg.Fence.Epoch(), r.cfg.Writer)
		body, err := r.encode(o.Key(), o, was.unknown)
		if err != nil {
			return fleet.Operator{}, err
		}
		_, err = object.PutConfirmed(ctx, r.cfg.Store, o.Key(), body, object.IfMatch(was.etag))
		if err == nil {
			audit.Changed(ctx, audit.Done("removed"))
		}
		if !errors.Is(err, object.ErrConflict) {
			return o, err
		}
		if err := retry.Wait(ctx, conflictPause); err != nil {
			return fleet.Operator{}, fmt.Errorf("remove operator %s: %w: %w", id, object.ErrConflict, err)
		}
	}
}

// entomb writes the tombstone of a removed operator, over a damaged one if need be, and
// returns the one that is stored.
func (r *Registry) entomb(ctx context.Context, o fleet.Operator) (fleet.Operator, error) {
	key := fleet.OperatorTombstoneKey(o.Tenant, o.ID)
	for {
		pre := object.IfAbsent()
		found, err := r.cfg.Operators.Get(ctx, key)
		switch {
		case err == nil:
			there, _, err := r.decode(key, o.Tenant, o.ID, found.Body)
			if err == nil && there.RemovedAt != nil {
				return there, nil
			}
			pre = object.IfMatch(found.ETag)
		case !errors.Is(err, object.ErrNotFound):
			return fleet.Operator{}, err
		}
		made := o.Written(r.cfg.Fence.Epoch(), r.cfg.Writer)
		body, err := r.encode(key, made, record.Unknown{})
		if err != nil {
			return fleet.Operator{}, err
		}
		_, err = object.PutConfirmed(ctx, r.cfg.Store, key, body, pre)
		if !errors.Is(err, object.ErrConflict) {
			return made, err
		}
		if err := retry.Wait(ctx, conflictPause); err != nil {
			return fleet.Operator{}, fmt.Errorf("remove operator %s: %w: %w", o.ID, object.ErrConflict, err)
		}
	}
}
