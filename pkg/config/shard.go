package config

import (
	"encoding/json"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
)

// Shard is the static config of one shard. One that Parse returned is complete
// and valid, and is not changed afterwards; it is safe for concurrent reads.
type Shard struct {
	Cluster       Cluster                 `json:"cluster"`
	Server        Server                  `json:"server"`
	Tenants       map[string]Tenant       `json:"tenants,omitempty"` // but for the implicit tenant default
	LoadBalancers map[string]LoadBalancer `json:"load_balancers,omitempty"`
	Images        map[string]Image        `json:"images,omitempty"`
	Certificates  map[string]Certificate  `json:"certificates,omitempty"`
	Defaults      Defaults                `json:"defaults"`
	Templates     map[string]Template     `json:"templates,omitempty"`
	Groups        map[string]TenantGroups `json:"groups,omitempty"` // by tenant
}

// TenantGroups are the groups of one tenant by name.
type TenantGroups map[string]Group

// Cluster names the cluster and says where its secrets are kept.
type Cluster struct {
	ID      string  `json:"id"`
	Secrets Secrets `json:"secrets"`
}

// The places that secrets, and the key that seals them, can be kept in.
const (
	SecretsObjectStorage  = "object-storage"
	SecretsSecretsManager = "aws-secrets-manager"
	SecretsParameterStore = "aws-parameter-store"
	KeyFromEnv            = "env"
	KeyFromFile           = "file"
)

// Secrets says where secrets are kept. The keys belong to object-storage, which
// keeps them sealed; old ones only ever open what they sealed.
type Secrets struct {
	Provider          string      `json:"provider"`
	Prefix            string      `json:"prefix"`
	Region            string      `json:"region,omitempty"` // of secrets at AWS; empty: as of the provider, or of the machine
	EncryptionKey     KeySource   `json:"encryption_key,omitzero"`
	OldEncryptionKeys []KeySource `json:"old_encryption_keys,omitempty"`
}

// KeySource says where a server finds an encryption key: the name of an
// environment variable, the path of a file, or the name of a cloud's secret.
type KeySource struct {
	Provider string `json:"provider"` // env | file | aws-secrets-manager | aws-parameter-store
	Source   string `json:"source"`
}

// Tenant has no settings yet; declaring it is what counts.
type Tenant struct{}

// LoadBalancer is what the instances of a group are registered with.
type LoadBalancer struct {
	Provider        string   `json:"provider"` // aws
	TargetGroupARNs []string `json:"target_group_arns"`
}

// Image finds a machine image by its properties: the first after sorting, or
// Fallback when none is found.
type Image struct {
	Provider string        `json:"provider"` // aws
	Owners   []string      `json:"owners,omitempty"`
	Filters  []ImageFilter `json:"filters,omitempty"`
	Sort     string        `json:"sort"`  // creation-date | name
	Order    string        `json:"order"` // asc | desc
	Fallback string        `json:"fallback,omitempty"`
}

// ImageFilter keeps the images whose property has one of the values.
type ImageFilter struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// Certificate describes certificates that instances get. Every string of the
// names is a template.
type Certificate struct {
	Kind         string   `json:"kind"` // server | client | peer (both usages)
	CN           string   `json:"cn"`
	Organization []string `json:"organization,omitempty"`
	DNS          []string `json:"dns,omitempty"`
	IP           []string `json:"ip,omitempty"`
	URI          []string `json:"uri,omitempty"` // see CheckCertificateURI
	TTL          int      `json:"ttl"`           // hours
}

// Defaults are the lowest layer of every template.
type Defaults struct {
	Args     map[string]any  `json:"args,omitempty"`
	Vars     map[string]any  `json:"vars,omitempty"`
	Userdata *fleet.Userdata `json:"userdata,omitempty"`
}

// Template describes a kind of instance. Its userdata, when given, replaces the
// default one as a whole.
type Template struct {
	Kind         string                `json:"kind"`
	Arch         string                `json:"arch"`               // amd64 | arm64
	Size         *int                  `json:"size,omitempty"`     // of groups that don't say
	Rotation     *Rotation             `json:"rotation,omitempty"` // the same
	InstanceType string                `json:"instance_type,omitempty"`
	SubnetPool   string                `json:"subnet_pool,omitempty"`
	Args         map[string]any        `json:"args,omitempty"`
	Vars         map[string]any        `json:"vars,omitempty"`
	Userdata     *fleet.Userdata       `json:"userdata,omitempty"`
	Files        map[string]fleet.File `json:"files,omitempty"`
}

// Group is a static group. What it leaves out its template supplies.
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
}

// HasTenant reports whether the shard serves the tenant.
func (s *Shard) HasTenant(name string) bool {
	_, ok := s.Tenants[name]
	return ok || name == fleet.DefaultTenant
}

// Static returns the static definition of a group, if there is one.
func (s *Shard) Static(key fleet.GroupKey) (Group, bool) {
	g, ok := s.Groups[key.Tenant][key.Name]
	return g, ok
}

// Encode writes the config with every default spelled out, as JSON that Parse
// accepts. The same config gives the same bytes.
func (s *Shard) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode config: %w", err)
	}
	return append(data, '\n'), nil
}
