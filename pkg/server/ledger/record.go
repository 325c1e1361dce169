package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/record"
)

const suffix = ".json"

func prefix(shard string) string { return "instance/" + shard + "/" }

// groupsSuffix is that of objects with dynamic groups.
const groupsSuffix = ".jsonc"

func groupsKey(shard string) string { return "groups/" + shard + groupsSuffix }

func tenantsPrefix(shard string) string { return "groups/" + shard + "/" }

// key is "instance/{shard}/{tenant}.{storage-key}.json".
func (l *Ledger) key(tenant string, id fleet.InstanceID) string {
	return prefix(l.cfg.Shard) + tenant + "." + id.StorageKey() + suffix
}

// parseKey reads what key wrote. The key comes from a listing of a bucket that
// anybody may have put things into.
func (l *Ledger) parseKey(key string) (tenant string, id fleet.InstanceID, err error) {
	name, isRecord := strings.CutSuffix(strings.TrimPrefix(key, prefix(l.cfg.Shard)), suffix)
	tenant, storageKey, found := strings.Cut(name, ".")
	if !isRecord || !found {
		return "", "", fmt.Errorf("object name %.200q is not that of a record: want {tenant}.{uuid}-{kind}.json", name)
	}
	if err := fleet.CheckName(tenant); err != nil {
		return "", "", fmt.Errorf("tenant in object name: %w", err)
	}
	id, err = fleet.ParseStorageKey(storageKey)
	return tenant, id, err
}

// encode writes a record with what it held before beside what i says, and reads it
// back, so that memory holds exactly what every other reader will see.
func encode(i fleet.Instance, unknown record.Unknown) ([]byte, entry, error) {
	body, err := record.Encode(i, unknown)
	if err != nil {
		return nil, entry{}, fmt.Errorf("encode record: %w", err)
	}
	stored, err := decode(body, i.Tenant, i.ID)
	return body, stored, err
}

// decode reads a record and checks that it is the one its key speaks of.
func decode(body []byte, tenant string, id fleet.InstanceID) (entry, error) {
	i, unknown, err := record.Decode[fleet.Instance](body)
	if err != nil {
		return entry{}, fmt.Errorf("decode record: %w", err)
	}
	switch {
	case i.ID != id:
		return entry{}, fmt.Errorf("id: %.80q, want %q as in the key", i.ID, id)
	case i.Tenant != tenant:
		return entry{}, fmt.Errorf("tenant: %.80q, want %q as in the key", i.Tenant, tenant)
	case !i.Phase.Valid():
		return entry{}, fmt.Errorf("phase: %.80q, want one of %v", i.Phase, fleet.Phases())
	case i.Rev == 0:
		return entry{}, errors.New("rev: 0, want at least 1")
	}
	if err := fleet.CheckName(i.Group); err != nil {
		return entry{}, fmt.Errorf("group: %w", err)
	}
	return entry{instance: i, unknown: unknown}, nil
}

// readEpoch reads nothing but the epoch of a document, which may have comments
// and be wrong in every other respect; 0 when there is none to be read.
func readEpoch(body []byte) uint64 {
	plain, err := hujson.Standardize(bytes.Clone(body))
	if err != nil {
		return 0
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(plain, &fields) != nil {
		return 0
	}
	epoch, err := strconv.ParseUint(string(fields["epoch"]), 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}

// maxEpoch is as high as a term rises at once. A higher number is damage, unless
// the terms of this shard have come to it one by one.
const maxEpoch = record.MaxNumber

// readAgain has the next Load read the objects again that were out of reach: they
// may be of terms before the one that begins.
func (l *Ledger) readAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, m := range l.malformed {
		if m.epoch > maxEpoch {
			m.etag = ""
			l.malformed[key] = m
		}
	}
}

// inReach checks an epoch that was read.
func (l *Ledger) inReach(epoch uint64) error {
	if highest := max(maxEpoch, l.term.Load()); epoch > highest {
		return fmt.Errorf("epoch: %d, want at most %d", epoch, highest)
	}
	return nil
}
