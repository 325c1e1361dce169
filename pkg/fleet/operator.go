package fleet

import "time"

// Operator is the durable record of one registered operator: a client that
// manages a tenant's groups. It belongs to the cluster rather than to a shard,
// and is written once, by whichever server or administrator lets it in. The id
// is that of the nonce it registered with, so writing the record spends the
// nonce.
type Operator struct {
	ID              InstanceID `json:"id"`
	Tenant          string     `json:"tenant"`
	PublicKeySHA256 string     `json:"public_key_sha256"`
	RegisteredAt    time.Time  `json:"registered_at"`
}

// Key is the object that holds the record. The id must be valid.
func (o Operator) Key() string {
	return "cluster/operator/" + o.Tenant + "." + o.ID.StorageKey() + ".json"
}
