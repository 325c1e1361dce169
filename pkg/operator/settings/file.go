package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
)

const (
	// maxFile is the longest configuration file that is read, in bytes: no ConfigMap is
	// longer.
	maxFile = 1 << 20
	// maxIDs is how long the ids of cluster and tenant may be together: the Cluster is
	// named {cluster}--{tenant}, and a label may have 63 characters.
	maxIDs        = 61
	defaultTenant = "default"
)

// File is what the configuration file says.
type File struct {
	Cluster string
	Tenant  string
	Shards  []Shard // sorted by id; at least one
}

// Shard is one shard and where its servers answer: host:port each.
type Shard struct {
	ID           string
	Registration []string
	Operator     []string
}

// Operators are the shards with where they answer operators.
func (f File) Operators() []client.Shard {
	shards := make([]client.Shard, 0, len(f.Shards))
	for _, s := range f.Shards {
		shards = append(shards, client.Shard{ID: s.ID, Addrs: s.Operator})
	}
	return shards
}

// ReadFile reads and parses a configuration file. The error names the file.
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

// ParseFile reads the text of a configuration file. The error tells every problem at
// once, each with the field, its value and what is valid.
func ParseFile(text []byte) (File, error) {
	if len(text) > maxFile {
		return File{}, fmt.Errorf("it has %d bytes: want at most %d", len(text), maxFile)
	}
	if documents(text) > 1 {
		return File{}, errors.New("it holds more than one YAML document: want one")
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

// documents counts those that a text holds; a parser would read the first one only.
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

// problems are those of one file.
type problems []error

func (p *problems) add(err error) { *p = append(*p, err) }

func (p *problems) file(root any) File {
	fields, ok := p.object("the file", "", root, "cluster_id", "tenant", "shards")
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
	return f
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

// object is a mapping of known fields only.
func (p *problems) object(what, prefix string, value any, known ...string) (fields map[string]any, ok bool) {
	fields, ok = value.(map[string]any)
	if !ok {
		p.add(fmt.Errorf("%s: %s: want a mapping with %s", what, shown(value), strings.Join(known, ", ")))
		return nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) {
			p.add(fmt.Errorf("%s%.80s: there is no such field: want %s", prefix, name, strings.Join(known, ", ")))
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

// addrs are separated by semicolons, as nstance-admin takes them; commas do as well.
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

// shown is a value as a person may have written it.
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
