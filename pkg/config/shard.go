package config

import (
	"encoding/json"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
)

// Shard is the static config of one shard. One returned by Parse is complete, valid and
// immutable; it is safe for concurrent reads.
type Shard struct {
	Cluster       Cluster                 `json:"cluster"`
	Server        Server                  `json:"server"`
	Tenants       map[string]Tenant       `json:"tenants,omitempty"` // without default, which always exists
	LoadBalancers map[string]LoadBalancer `json:"load_balancers,omitempty"`
	Images        map[string]Image        `json:"images,omitempty"`
	Certificates  map[string]Certificate  `json:"certificates,omitempty"`
	Defaults      Defaults                `json:"defaults"`
	Templates     map[string]Template     `json:"templates,omitempty"`
	Secrets       map[string]Access       `json:"secrets,omitempty"` // by name, or by a prefix and *
	Files         map[string]Access       `json:"files,omitempty"`   // by key below files/, or by folder
	Groups        map[string]TenantGroups `json:"groups,omitempty"`  // by tenant
	// Removed names groups, as tenant/group, that this config may take all machines from: it does not
	// define them, or with size 0.
	Removed []string `json:"removed,omitempty"`

	// excused has the violations of tenant rules that ParseAccepted found; nil: none.
	excused *excuses
}

// TenantGroups are the groups of one tenant by name.
type TenantGroups map[string]Group

// Cluster identifies the cluster and the location of its secrets.
type Cluster struct {
	ID      string  `json:"id"`
	Secrets Secrets `json:"secrets"`
}

// The providers of secrets and of the keys that seal them.
const (
	SecretsObjectStorage  = "object-storage"
	SecretsSecretsManager = "aws-secrets-manager"
	SecretsParameterStore = "aws-parameter-store"
	KeyFromEnv            = "env"
	KeyFromFile           = "file"
)

// Secrets is the location of secrets. The keys are for object-storage, which seals them; old
// keys are used only to open what they sealed.
type Secrets struct {
	Provider          string      `json:"provider"`
	Prefix            string      `json:"prefix"`
	Region            string      `json:"region,omitempty"` // of secrets at AWS; empty: that of the provider or the machine
	EncryptionKey     KeySource   `json:"encryption_key,omitzero"`
	OldEncryptionKeys []KeySource `json:"old_encryption_keys,omitempty"`
}

// KeySource is the source of an encryption key: the name of an environment variable, the path
// of a file, or the name of a cloud's secret.
type KeySource struct {
	Provider string `json:"provider"` // env | file | aws-secrets-manager | aws-parameter-store
	Source   string `json:"source"`
}

// LoadBalancer is where the instances of a group are registered.
type LoadBalancer struct {
	Provider        string   `json:"provider"` // aws
	TargetGroupARNs []string `json:"target_group_arns"`
	Tenants         Tenants  `json:"tenants,omitempty"`
}

// Image selects a machine image by its properties: the first after sorting, or Fallback if
// none is found.
type Image struct {
	Provider string        `json:"provider"` // aws
	Owners   []string      `json:"owners,omitempty"`
	Filters  []ImageFilter `json:"filters,omitempty"`
	Sort     string        `json:"sort"`  // creation-date | name
	Order    string        `json:"order"` // asc | desc
	Fallback string        `json:"fallback,omitempty"`
	Tenants  Tenants       `json:"tenants,omitempty"`
}

// ImageFilter selects images whose property has one of the values.
type ImageFilter struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// Certificate describes certificates for instances. The strings of all names are templates.
type Certificate struct {
	Kind         string   `json:"kind"` // server | client | peer (both usages)
	CN           string   `json:"cn"`
	Organization []string `json:"organization,omitempty"`
	DNS          []string `json:"dns,omitempty"`
	IP           []string `json:"ip,omitempty"`
	URI          []string `json:"uri,omitempty"` // see CheckCertificateURI
	TTL          int      `json:"ttl"`           // hours
	Tenants      Tenants  `json:"tenants,omitempty"`
}

// Defaults are the lowest layer of every template, for the groups of their tenants.
type Defaults struct {
	Tenants  Tenants         `json:"tenants,omitempty"`
	Args     map[string]any  `json:"args,omitempty"`
	Vars     map[string]any  `json:"vars,omitempty"`
	Userdata *fleet.Userdata `json:"userdata,omitempty"`
}

// Template describes a kind of instance. Its userdata, if set, replaces the default userdata
// as a whole. Whatever it uses must be usable by its tenants, too.
type Template struct {
	Tenants      Tenants               `json:"tenants,omitempty"`
	Kind         string                `json:"kind"`
	Arch         string                `json:"arch"`               // amd64 | arm64
	Size         *int                  `json:"size,omitempty"`     // of groups without one
	Rotation     *Rotation             `json:"rotation,omitempty"` // of groups without one
	InstanceType string                `json:"instance_type,omitempty"`
	SubnetPool   string                `json:"subnet_pool,omitempty"`
	Args         map[string]any        `json:"args,omitempty"`
	Vars         map[string]any        `json:"vars,omitempty"`
	Userdata     *fleet.Userdata       `json:"userdata,omitempty"`
	Files        map[string]fleet.File `json:"files,omitempty"`
	RequireFiles *bool                 `json:"require_files,omitempty"` // an instance is ready only with its files; true if absent
}

func (t Template) filesOptional() bool { return t.RequireFiles != nil && !*t.RequireFiles }

// Group is a static group. Absent fields default to the template's.
type Group struct {
	Template      string         `json:"template"`
	Size          *int           `json:"size,omitempty"`
	InstanceType  string         `json:"instance_type,omitempty"`
	SubnetPool    string         `json:"subnet_pool,omitempty"`
	Args          map[string]any `json:"args,omitempty"`
	Vars          map[string]any `json:"vars,omitempty"`
	LoadBalancers []string       `json:"load_balancers,omitempty"`
	DrainTimeout  *Duration      `json:"drain_timeout,omitempty"` // 0: delete at once
	Rotation      *Rotation      `json:"rotation,omitempty"`
	// OnDemand is what pods may request of the group; nil: nothing.
	OnDemand *fleet.OnDemand `json:"on_demand,omitempty"`
}

// HasTenant reports whether the shard serves the tenant.
func (s *Shard) HasTenant(name string) bool {
	_, ok := s.Tenants[name]
	return ok || name == fleet.DefaultTenant
}

// CheckTenant returns an error if the shard does not serve a tenant. It does not reveal the
// tenants that it serves.
func (s *Shard) CheckTenant(name string) error {
	if s.HasTenant(name) {
		return nil
	}
	return fmt.Errorf("tenant %.80q is not declared in the config of this shard: declare it under tenants there, "+
		"or use the identity of a tenant that is", name)
}

// Static returns the static definition of a group, if there is one.
func (s *Shard) Static(key fleet.GroupKey) (Group, bool) {
	g, ok := s.Groups[key.Tenant][key.Name]
	return g, ok
}

// Encode returns the config with all defaults as JSON that Parse accepts. It is deterministic.
func (s *Shard) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode config: %w", err)
	}
	return append(data, '\n'), nil
}
