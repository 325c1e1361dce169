package fleet

import (
	"fmt"
	"strings"
	"time"
)

// OperatorPrefix is the storage prefix of all operator records.
const OperatorPrefix = "cluster/operator/"

// OperatorSeal is the purpose of the key that seals operator records.
const OperatorSeal = "nstance operator records"

// Operator is the durable record of one registered operator: a client that
// manages a tenant's groups. It belongs to the cluster rather than to a shard, and
// is created once, by the server or administrator that admits the operator. Its id
// is that of the registration nonce, so writing the record consumes the nonce.
//
// A removed operator keeps its record and gets a tombstone at OperatorTombstoneKey,
// so restoring an older record does not restore the operator. RemovedAt is never
// cleared. Both objects are sealed (record.Seal) with the key that the cluster's CA
// derives for OperatorSeal.
type Operator struct {
	ID              InstanceID `json:"id"`
	Tenant          string     `json:"tenant"`
	PublicKeySHA256 string     `json:"public_key_sha256"`
	RegisteredAt    time.Time  `json:"registered_at"`
	RemovedAt       *time.Time `json:"removed_at,omitempty"`
	RemovedBy       InstanceID `json:"removed_by,omitempty"` // the operator that requested the removal

	// Epoch is the term in which Writer led its shard when it wrote the record; zero if
	// it led none. Each write increments Rev. Records of older versions have neither.
	Epoch  uint64 `json:"epoch,omitempty"`
	Rev    uint64 `json:"rev,omitempty"`
	Writer string `json:"writer,omitempty"`
}

// OperatorKey returns the storage key of an operator's record. Tenant and id must
// be valid.
func OperatorKey(tenant string, id InstanceID) string {
	return OperatorPrefix + tenant + "." + id.StorageKey() + ".json"
}

// OperatorTombstoneSuffix is what the storage keys of operators' tombstones end with.
const OperatorTombstoneSuffix = ".removed.json"

// OperatorTombstoneKey returns the storage key of an operator's tombstone. The object is
// written once and never replaced, and deleted only when nothing is left that it would refuse,
// so a bucket policy can deny both.
func OperatorTombstoneKey(tenant string, id InstanceID) string {
	return OperatorPrefix + tenant + "." + id.StorageKey() + OperatorTombstoneSuffix
}

// Key returns the storage key of the record. The id must be valid.
func (o Operator) Key() string { return OperatorKey(o.Tenant, o.ID) }

// ParseOperatorKey is the inverse of OperatorKey.
func ParseOperatorKey(key string) (tenant string, id InstanceID, err error) {
	name, ok := strings.CutPrefix(key, OperatorPrefix)
	tenant, rest, dot := strings.Cut(name, ".")
	storage, suffix := strings.CutSuffix(rest, ".json")
	if !ok || !dot || !suffix {
		return "", "", fmt.Errorf("object %.200q is not an operator record: want %s{tenant}.{uuid}-%s.json", key, OperatorPrefix, OperatorKind)
	}
	if err := CheckName(tenant); err != nil {
		return "", "", fmt.Errorf("object %.200q: tenant: %w", key, err)
	}
	if id, err = ParseStorageKey(storage); err != nil {
		return "", "", fmt.Errorf("object %.200q: %w", key, err)
	}
	if id.Kind() != OperatorKind {
		return "", "", fmt.Errorf("object %.200q: kind %q is not an operator: want %s", key, id.Kind(), OperatorKind)
	}
	return tenant, id, nil
}

// Check returns an error if the record is not that of the given operator.
func (o Operator) Check(tenant string, id InstanceID) error {
	if o.Tenant != tenant || o.ID != id {
		return fmt.Errorf("record is of operator %.80q of tenant %.80q: want %s of %s, as in the object's name", o.ID, o.Tenant, id, tenant)
	}
	return nil
}

// Remove returns the record marked as removed by an operator, which may be o itself. The
// result has no public key, so versions that don't know removals refuse the nonce too.
func (o Operator) Remove(by InstanceID, at time.Time) Operator {
	at = at.UTC()
	o.RemovedAt, o.RemovedBy, o.PublicKeySHA256 = &at, by, ""
	return o
}

// Written returns the record with Epoch, Rev and Writer of its next write.
func (o Operator) Written(epoch uint64, writer string) Operator {
	o.Epoch, o.Rev, o.Writer = epoch, o.Rev+1, writer
	return o
}
