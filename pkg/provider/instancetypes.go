package provider

import "context"

// InstanceType is the capacity of an instance type.
type InstanceType struct {
	CPUMillis   int64 // thousandths of a CPU
	MemoryBytes int64
	Arch        string // amd64 | arm64
}

// InstanceTypes is implemented by providers that know the capacity of their instance types.
type InstanceTypes interface {
	// InstanceTypes returns instance types by name. Unknown types are omitted, which is not an
	// error. An instance type never changes.
	InstanceTypes(ctx context.Context, names []string) (map[string]InstanceType, error)
}
