package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
)

const (
	// maxFile is the size limit of the configuration file, in bytes: that of a ConfigMap.
	maxFile = 1 << 20
	// maxIDs limits the joint length of the IDs of cluster and tenant: the Cluster is named
	// {cluster}--{tenant}, and a label value may have 63 characters.
	maxIDs        = 61
	defaultTenant = "default"

	defaultNodeStartup = 10 * time.Minute
	minNodeStartup     = time.Minute
)

// File is a parsed configuration file.
type File struct {
	Cluster string
	Tenant  string
	Shards  []Shard // sorted by id; at least one
	// NodeStartup is how long a pod's machine may be without a working node; 0: for ever.
	NodeStartup time.Duration
}

// Shard is a shard with the addresses of its servers, host:port each.
type Shard struct {
	ID           string
	Registration []string
	Operator     []string
}

// Operators returns the shards with the addresses of their operator services.
func (f File) Operators() []client.Shard {
	shards := make([]client.Shard, 0, len(f.Shards))
	for _, s := range f.Shards {
		shards = append(shards, client.Shard{ID: s.ID, Addrs: s.Operator})
	}
	return shards
}

// ReadFile reads and parses a configuration file. Errors name the file.
func ReadFile(path string, read func(string) ([]byte, error)) (File, error) {
	text, err := read(path)
	if err != nil {
		return File{}, fmt.Errorf("read the configuration file: %w", err)
	}
	f, err := ParseFile(text)
	if err != nil {
		return File{}, fmt.Errorf("configuration file %s is not valid:\n%w", path, err)
	}
	return f, nil
}

// ParseFile parses a configuration file. The error lists every problem at once, each with the
// field, its value and what is valid.
func ParseFile(text []byte) (File, error) {
	if len(text) > maxFile {
		return File{}, fmt.Errorf("it has %d bytes: want at most %d", len(text), maxFile)
	}
	if documents(text) > 1 {
		return File{}, errors.New("it has more than one YAML document: want one")
	}
	var root any
	if err := yaml.UnmarshalStrict(text, &root); err != nil {
		return File{}, err
	}
	p := &problems{}
	f := p.file(root)
	if err := errors.Join(*p...); err != nil {
		return File{}, err
	}
	return f, nil
}

// documents counts the YAML documents; a parser would read only the first.
func documents(text []byte) int {
	n, inside := 0, false
	for line := range bytes.Lines(text) {
		switch line = bytes.TrimRight(line, " \t\r\n"); {
		case len(line) == 0 || line[0] == '#':
		case bytes.Equal(line, []byte("---")) || bytes.HasPrefix(line, []byte("--- ")):
			inside = false
		case !inside:
			inside = true
			n++
		}
	}
	return n
}

// problems collects the problems of a file.
type problems []error

func (p *problems) add(err error) { *p = append(*p, err) }

func (p *problems) file(root any) File {
	fields, ok := p.object("the file", "", root, "cluster_id", "tenant", "shards", "node_startup_timeout")
	if !ok {
		return File{}
	}
	f := File{Cluster: p.id("cluster_id", fields["cluster_id"]), Tenant: defaultTenant}
	if tenant, given := fields["tenant"]; given {
		f.Tenant = p.id("tenant", tenant)
	}
	if len(f.Cluster)+len(f.Tenant) > maxIDs {
		p.add(fmt.Errorf("cluster_id %q and tenant %q have %d characters together: want at most %d, so that %s--%s can name a Cluster",
			f.Cluster, f.Tenant, len(f.Cluster)+len(f.Tenant), maxIDs, f.Cluster, f.Tenant))
	}
	f.Shards = p.shards(fields["shards"])
	f.NodeStartup = defaultNodeStartup
	if timeout, given := fields["node_startup_timeout"]; given {
		f.NodeStartup = p.nodeStartup(timeout)
	}
	return f
}

func (p *problems) nodeStartup(value any) time.Duration {
	text, _ := value.(string)
	d, err := time.ParseDuration(text)
	if err != nil || d != 0 && d < minNodeStartup {
		p.add(fmt.Errorf("node_startup_timeout: %s: want a duration of at least %s, such as \"10m\", or \"0s\" for no limit",
			shown(value), minNodeStartup))
	}
	return d
}

func (p *problems) shards(value any) (shards []Shard) {
	const want = "want one shard at least, such as us-west-2a: {registration_addr: 10.0.0.1:8992, operator_addr: 10.0.0.1:8993}"
	all, ok := value.(map[string]any)
	if !ok || len(all) == 0 {
		p.add(fmt.Errorf("shards: %s: %s", shown(value), want))
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if err := fleet.CheckName(id); err != nil {
			p.add(fmt.Errorf("shards: %w", err))
			continue
		}
		path := "shards." + id
		fields, ok := p.object(path, path+".", all[id], "registration_addr", "operator_addr")
		if !ok {
			continue
		}
		shards = append(shards, Shard{
			ID:           id,
			Registration: p.addrs(path+".registration_addr", fields["registration_addr"]),
			Operator:     p.addrs(path+".operator_addr", fields["operator_addr"]),
		})
	}
	return shards
}

// object checks for a mapping with known fields only.
func (p *problems) object(what, prefix string, value any, known ...string) (fields map[string]any, ok bool) {
	fields, ok = value.(map[string]any)
	if !ok {
		p.add(fmt.Errorf("%s: %s: want a mapping with %s", what, shown(value), strings.Join(known, ", ")))
		return nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) {
			p.add(fmt.Errorf("%s%.80s: unknown field: want %s", prefix, name, strings.Join(known, ", ")))
		}
	}
	return fields, true
}

func (p *problems) text(field string, value any) (text string, ok bool) {
	if text, ok = value.(string); !ok {
		p.add(fmt.Errorf("%s: %s: want text, in quotes where it looks like a number", field, shown(value)))
	}
	return text, ok
}

func (p *problems) id(field string, value any) string {
	text, ok := p.text(field, value)
	if !ok {
		return ""
	}
	if err := fleet.CheckName(text); err != nil {
		p.add(fmt.Errorf("%s: %w", field, err))
		return ""
	}
	return text
}

// addrs parses addresses separated by semicolons, as in nstance-admin, or by commas.
func (p *problems) addrs(field string, value any) []string {
	text, ok := p.text(field, value)
	if !ok {
		return nil
	}
	addrs, err := rpc.ParseAddrs(field, strings.ReplaceAll(text, ";", ","))
	if err != nil {
		p.add(err)
	}
	return addrs
}

// shown formats a value as the user may have written it.
func shown(value any) string {
	if value == nil {
		return "it is missing"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "it can't be read"
	}
	return fmt.Sprintf("%.80s is not valid", text)
}
