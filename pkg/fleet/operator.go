package fleet

import (
	"fmt"
	"strings"
	"time"
)

// OperatorPrefix is where the records of all operators are.
const OperatorPrefix = "cluster/operator/"

// Operator is the durable record of one registered operator: a client that
// manages a tenant's groups. It belongs to the cluster rather than to a shard,
// and is made once, by whichever server or administrator lets it in. The id
// is that of the nonce it registered with, so writing the record spends the
// nonce.
//
// An operator that is removed keeps its record: were it deleted, the nonce would
// be as good as new. Nothing ever takes RemovedAt back.
type Operator struct {
	ID              InstanceID `json:"id"`
	Tenant          string     `json:"tenant"`
	PublicKeySHA256 string     `json:"public_key_sha256"`
	RegisteredAt    time.Time  `json:"registered_at"`
	RemovedAt       *time.Time `json:"removed_at,omitempty"`
	RemovedBy       InstanceID `json:"removed_by,omitempty"` // the operator that asked for it

	// Epoch is of the term that Writer led its shard in when it wrote the record;
	// zero: it leads none. Rev is one more with each write. Records without them
	// are of a version before.
	Epoch  uint64 `json:"epoch,omitempty"`
	Rev    uint64 `json:"rev,omitempty"`
	Writer string `json:"writer,omitempty"`
}

// OperatorKey is the object that holds an operator's record. Tenant and id must
// be valid.
func OperatorKey(tenant string, id InstanceID) string {
	return OperatorPrefix + tenant + "." + id.StorageKey() + ".json"
}

// Key is the object that holds the record. The id must be valid.
func (o Operator) Key() string { return OperatorKey(o.Tenant, o.ID) }

// ParseOperatorKey reads whose record an object is. It is the inverse of
// OperatorKey.
func ParseOperatorKey(key string) (tenant string, id InstanceID, err error) {
	name, ok := strings.CutPrefix(key, OperatorPrefix)
	tenant, rest, dot := strings.Cut(name, ".")
	storage, suffix := strings.CutSuffix(rest, ".json")
	if !ok || !dot || !suffix {
		return "", "", fmt.Errorf("object %.200q is not an operator's: want %s{tenant}.{uuid}-%s.json", key, OperatorPrefix, OperatorKind)
	}
	if err := CheckName(tenant); err != nil {
		return "", "", fmt.Errorf("object %.200q: tenant: %w", key, err)
	}
	if id, err = ParseStorageKey(storage); err != nil {
		return "", "", fmt.Errorf("object %.200q: %w", key, err)
	}
	if id.Kind() != OperatorKind {
		return "", "", fmt.Errorf("object %.200q: kind %q is not an operator's: want %s", key, id.Kind(), OperatorKind)
	}
	return tenant, id, nil
}

// Check reports why a record can't be the one that was read for an operator; nil
// when it can.
func (o Operator) Check(tenant string, id InstanceID) error {
	if o.Tenant != tenant || o.ID != id {
		return fmt.Errorf("it is of operator %.80q of tenant %.80q: want %s of %s, as in the object's name", o.ID, o.Tenant, id, tenant)
	}
	return nil
}

// Remove is the record of the operator once it is removed, by another or itself.
// It is bound to no key any more, so that a version which knows nothing of
// removals refuses the nonce too.
func (o Operator) Remove(by InstanceID, at time.Time) Operator {
	at = at.UTC()
	o.RemovedAt, o.RemovedBy, o.PublicKeySHA256 = &at, by, ""
	return o
}

// Written is the record with the marks of its next write.
func (o Operator) Written(epoch uint64, writer string) Operator {
	o.Epoch, o.Rev, o.Writer = epoch, o.Rev+1, writer
	return o
}
