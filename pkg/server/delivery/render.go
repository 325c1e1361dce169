package delivery

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
)

// The kinds of files, as templates name them.
const (
	kindCertificate = "certificate"
	kindSecret      = "secret"
	kindStorage     = "storage"
	kindEnv         = "env"
	kindJSON        = "json"
	kindString      = "string"
)

// fileError is why a file can't be made.
type fileError struct {
	name   string
	reason string // ReasonFiles or ReasonStorage
	err    error
}

func (e *fileError) Error() string { return "file " + e.name + ": " + e.err.Error() }

func (e *fileError) Unwrap() error { return e.err }

// content is what a set's file is made of.
type content struct {
	body    []byte           // of anything but a certificate
	request *pki.LeafRequest // of a certificate: without key and time
}

// rendering is a set with all that is needed to send it.
type rendering struct {
	set      *Set
	contents map[string]content
}

// recipe is what a set is rendered from.
type recipe struct {
	cluster      string
	group        fleet.Group
	certificates map[string]config.Certificate
	facts        config.Facts
	// fetch returns a secret or an object, or a *sourceError.
	fetch func(source) ([]byte, error)
}

// render makes the whole set, or says which of its files can't be made.
func (r recipe) render() (*rendering, error) {
	out := &rendering{set: &Set{Hash: r.group.Hashes.Runtime}, contents: make(map[string]content, len(r.group.Files))}
	names := slices.Sorted(maps.Keys(r.group.Files))
	if len(names) > files.MaxFiles {
		return nil, fmt.Errorf("%d files: at most %d are allowed", len(names), files.MaxFiles)
	}
	for _, name := range names {
		f := r.group.Files[name]
		c, wanted, err := r.file(name, f)
		if err != nil {
			reason := ReasonFiles
			if errors.As(err, new(*unreachable)) {
				reason = ReasonStorage
			}
			return nil, &fileError{name: name, reason: reason, err: err}
		}
		wanted.Name = name
		out.set.Files = append(out.set.Files, wanted)
		out.contents[name] = c
		if out.set.size += int64(len(c.body)); out.set.size > files.MaxSetSize-certificateRoom {
			err := fmt.Errorf("the files up to this one have %d bytes: at most %d are allowed", out.set.size, files.MaxSetSize-certificateRoom)
			return nil, &fileError{name: name, reason: ReasonFiles, err: err}
		}
	}
	return out, nil
}

// certificateRoom is what a set leaves for its certificates of what an agent
// takes: a few kilobytes each.
const certificateRoom = 1 << 20

func (r recipe) file(name string, f fleet.File) (content, Wanted, error) {
	if f.Kind == kindCertificate {
		return r.certificate(f)
	}
	body, err := r.body(f)
	if err != nil {
		return content{}, Wanted{}, err
	}
	// The agent's own test: what it would refuse for ever is not sent.
	if err := files.CheckContent(name, body); err != nil {
		return content{}, Wanted{}, err
	}
	return content{body: body}, Wanted{Sum: sha256.Sum256(body)}, nil
}

func (r recipe) body(f fleet.File) ([]byte, error) {
	field, value := "content", f.Content
	switch f.Kind {
	case kindSecret, kindStorage:
		return r.fetch(source{kind: f.Kind, name: f.Source})
	case kindEnv:
		field, value = "values", f.Values
	case kindJSON, kindString:
	default:
		return nil, fmt.Errorf("kind %.40q is not known", f.Kind)
	}
	v, err := config.RenderValue(field, value, r.facts)
	switch {
	case err != nil:
		return nil, err
	case f.Kind == kindEnv:
		return EnvFile(v.(map[string]any))
	case f.Kind == kindJSON:
		return jsonFile(v)
	}
	text, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("content of type %T: want a string", v)
	}
	return []byte(text), nil
}

// jsonFile writes a value so that the same value gives the same bytes.
func jsonFile(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("write as JSON: %w", err)
	}
	return b.Bytes(), nil
}

// certificate renders what a certificate is to say.
func (r recipe) certificate(f fleet.File) (content, Wanted, error) {
	t, ok := r.certificates[f.Template]
	if !ok || f.Key == nil {
		return content{}, Wanted{}, fmt.Errorf("certificate template %.80q is not there", f.Template)
	}
	v, err := config.RenderValue("certificates."+f.Template, map[string]any{
		"cn": t.CN, "organization": list(t.Organization), "dns": list(t.DNS), "ip": list(t.IP), "uri": list(t.URI),
	}, r.facts)
	if err != nil {
		return content{}, Wanted{}, err
	}
	names := v.(map[string]any)
	request := &pki.LeafRequest{
		Kind: pki.LeafKind(t.Kind), CN: names["cn"].(string), Organization: texts(names["organization"]),
		DNS: texts(names["dns"]), URI: texts(names["uri"]), TTL: time.Duration(t.TTL) * time.Hour,
	}
	for _, text := range texts(names["ip"]) {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return content{}, Wanted{}, fmt.Errorf("certificates.%s.ip: %.80q is no IP address", f.Template, text)
		}
		request.IP = append(request.IP, ip)
	}
	for _, uri := range request.URI {
		if err := config.CheckCertificateURI(r.cluster, uri); err != nil {
			return content{}, Wanted{}, fmt.Errorf("certificates.%s.uri: %w", f.Template, err)
		}
	}
	if err := request.Check(r.cluster); err != nil {
		return content{}, Wanted{}, fmt.Errorf("certificates.%s: %w", f.Template, err)
	}
	text, err := json.Marshal([]any{t.Kind, names, t.TTL, f.Key.Name})
	if err != nil {
		return content{}, Wanted{}, err
	}
	return content{request: request}, Wanted{Sum: sha256.Sum256(text), Key: f.Key.Name, TTL: request.TTL}, nil
}

func list(texts []string) []any {
	out := make([]any, len(texts))
	for n, text := range texts {
		out[n] = text
	}
	return out
}

// texts undoes list.
func texts(v any) []string {
	all, _ := v.([]any)
	out := make([]string, 0, len(all))
	for _, one := range all {
		if text, ok := one.(string); ok {
			out = append(out, text)
		}
	}
	return out
}
