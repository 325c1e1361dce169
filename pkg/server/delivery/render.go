package delivery

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
)

// KindCertificate is the kind of files that are certificates of the instance.
const KindCertificate = "certificate"

// Other kinds of files, as templates name them.
const (
	kindSecret  = "secret"
	kindStorage = "storage"
	kindEnv     = "env"
	kindJSON    = "json"
	kindString  = "string"
)

// fileError is the reason why a file can't be rendered.
type fileError struct {
	name   string
	reason string // ReasonFiles or ReasonStorage
	err    error
}

func (e *fileError) Error() string { return "file " + e.name + ": " + e.err.Error() }

func (e *fileError) Unwrap() error { return e.err }

// content is the content of a file of a set.
type content struct {
	body    []byte           // of all kinds but certificates
	request *pki.LeafRequest // of a certificate, without key and time
	kept    bool             // it is that of the set before, and was not rendered
}

// rendering is a set with what was rendered of it: files that are as before have no content.
type rendering struct {
	set      *Set
	contents map[string]content
}

// recipe holds the inputs of a rendering.
type recipe struct {
	cluster      string
	group        fleet.Group
	certificates map[string]config.Certificate
	values       config.Values
	before       *Set                         // the instance's last set, of which what can't have changed is kept; nil: all is rendered
	alone        bool                         // the instance has vars of its own: so that they are not kept, all is rendered each time
	permit       func(*pki.LeafRequest) error // returns an error if the instance must not have a certificate
	// allowed returns an error if the tenant may not have a file any more: a newer config may
	// have revoked it after the group was defined.
	allowed func(fleet.File) error
	// fetch returns a secret or an object, or a *sourceError.
	fetch func(source) (fetched, error)
}

// render renders the whole set; the error says which file can't be rendered.
func (r recipe) render() (*rendering, error) {
	out := &rendering{contents: map[string]content{}, set: &Set{Hash: r.group.Hashes.Runtime, Files: make([]Wanted, 0, len(r.group.Files))}}
	if !r.alone {
		out.set.from = origin{r.group.Files, r.values.Facts()}
	}
	names := slices.Sorted(maps.Keys(r.group.Files))
	if len(names) > files.MaxFiles {
		return nil, fmt.Errorf("%d files: at most %d are allowed", len(names), files.MaxFiles)
	}
	same := r.sameAs(r.before)
	for _, name := range names {
		f := r.group.Files[name]
		if r.group.Disabled != "" && r.allowed(f) != nil { // reported as the group's problem
			out.set.Files = append(out.set.Files, Wanted{Name: name, Left: true})
			continue
		}
		c, wanted, err := r.file(name, f, same)
		if err != nil {
			reason := ReasonFiles
			if errors.As(err, new(*unreachable)) {
				reason = ReasonStorage
			}
			return nil, &fileError{name: name, reason: reason, err: err}
		}
		wanted.Name = name
		out.set.Files = append(out.set.Files, wanted)
		if !c.kept {
			out.contents[name] = c
		}
		if out.set.size += int64(wanted.size); out.set.size > files.MaxSetSize-certificateRoom {
			err := fmt.Errorf("the files up to this one have %d bytes: at most %d are allowed", out.set.size, files.MaxSetSize-certificateRoom)
			return nil, &fileError{name: name, reason: ReasonFiles, err: err}
		}
	}
	return out, nil
}

// certificateRoom is the part of the agent's size limit reserved for certificates, a few
// kilobytes each.
const certificateRoom = 1 << 20

// sameAs returns which files have the same content as in the set before, whatever it is.
func (r recipe) sameAs(before *Set) func(name string, f fleet.File) (Wanted, bool) {
	if before == nil {
		return func(string, fleet.File) (Wanted, bool) { return Wanted{}, false }
	}
	changed := r.values.Since(before.from.facts)
	return func(name string, f fleet.File) (Wanted, bool) {
		w, ok := before.wanted(name)
		kept := ok && !w.Left && !fetches(f.Kind) && f.Kind != KindCertificate && reflect.DeepEqual(before.from.files[name], f)
		return w, kept && !changed.Affects(f.Content) && !changed.Affects(f.Values)
	}
}

// fetches reports whether files of a kind have the content of a source.
func fetches(kind string) bool { return kind == kindSecret || kind == kindStorage }

func (r recipe) file(name string, f fleet.File, same func(string, fleet.File) (Wanted, bool)) (content, Wanted, error) {
	if err := r.allowed(f); err != nil {
		return content{}, Wanted{}, err
	}
	if f.Kind == KindCertificate {
		return r.certificate(f)
	}
	before, kept := same(name, f)
	if kept {
		return content{kept: true}, before, nil
	}
	got, err := r.content(f)
	if err != nil {
		return content{}, Wanted{}, err
	}
	// The agent makes the same check; don't send what it would always refuse.
	if got.sum != before.Sum || before.Key != "" {
		if err := files.CheckContent(name, got.body); err != nil {
			return content{}, Wanted{}, err
		}
	}
	return content{body: got.body}, Wanted{Sum: got.sum, size: len(got.body)}, nil
}

// content fetches or renders a file.
func (r recipe) content(f fleet.File) (fetched, error) {
	if fetches(f.Kind) {
		return r.fetch(source{kind: f.Kind, name: f.Source})
	}
	body, err := r.body(f)
	return fetched{body, sha256.Sum256(body)}, err
}

func (r recipe) body(f fleet.File) ([]byte, error) {
	field, value := "content", f.Content
	switch f.Kind {
	case kindEnv:
		field, value = "values", f.Values
	case kindJSON, kindString:
	default:
		return nil, fmt.Errorf("kind %.40q is not known", f.Kind)
	}
	v, err := r.values.Render(field, value)
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

// jsonFile encodes a value deterministically.
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

// certificate renders the request of a certificate.
func (r recipe) certificate(f fleet.File) (content, Wanted, error) {
	t, ok := r.certificates[f.Template]
	if !ok || f.Key == nil {
		return content{}, Wanted{}, fmt.Errorf("certificate template %.80q is not there", f.Template)
	}
	v, err := r.values.Render("certificates."+f.Template, map[string]any{
		"cn": t.CN, "organization": list(t.Organization), "dns": list(t.DNS), "ip": list(t.IP), "uri": list(t.URI),
	})
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
			return content{}, Wanted{}, fmt.Errorf("certificates.%s.ip: %.80q is not an IP address", f.Template, text)
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
	if err := r.permit(request); err != nil {
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
