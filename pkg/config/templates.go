package config

import (
	"strings"
	"sync"
	"text/template"

	"github.com/nstance/nstance/pkg/fleet"
)

// maxTemplates is how much text Templates keeps, in bytes. Parsed, it takes several times that.
const maxTemplates = 512 << 10

// Templates keeps parsed templates, so that a text that is rendered for many instances is parsed once.
// They are kept by their text, so none is ever out of date; what exceeds maxTemplates is parsed again.
// Nil keeps none. It is safe for concurrent use.
type Templates struct {
	mu    sync.Mutex
	kept  map[string]*parsed
	bytes int // of their texts
}

// parsed is a template, and what it uses. It is immutable.
type parsed struct {
	*template.Template
	uses uses
}

// NewTemplates returns an empty Templates.
func NewTemplates() *Templates { return &Templates{kept: map[string]*parsed{}} }

// parse returns the parsed template of a text.
func (t *Templates) parse(text string) (*parsed, error) {
	if t == nil {
		return newParsed(text)
	}
	t.mu.Lock()
	kept := t.kept[text]
	t.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	p, err := newParsed(text)
	if err == nil {
		t.keep(strings.Clone(text), p)
	}
	return p, err
}

func newParsed(text string) (*parsed, error) {
	t, err := parseTemplate(text)
	if err != nil {
		return nil, err
	}
	return &parsed{t, usesBy(t)}, nil
}

func (t *Templates) keep(text string, p *parsed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept[text] != nil {
		return
	}
	for other := range t.kept {
		if t.bytes+len(text) <= maxTemplates {
			break
		}
		delete(t.kept, other)
		t.bytes -= len(other)
	}
	t.kept[text] = p
	t.bytes += len(text)
}

// Values renders values with the same facts.
type Values struct {
	templates *Templates
	facts     Facts
	data      map[string]any // without the nonce
}

// For returns what renders values with the given facts, which must not be modified.
func (t *Templates) For(f Facts) Values { return Values{t, f, f.data(false)} }

// Facts returns the facts.
func (s Values) Facts() Facts { return s.facts }

// Render renders every string in v, which is a string, or an object or array of strings; errors use
// path as its name. The nonce is not available.
func (s Values) Render(path string, v any) (any, error) {
	return newRenderer(s.templates, s.data).value(path, copyValue(v))
}

// Args renders every string in args, at any depth; keys and other values are unchanged. The result
// shares no memory with args. Errors name the path of the string within args. The nonce is not
// available.
func (s Values) Args(args map[string]any) (map[string]any, error) {
	v, err := newRenderer(s.templates, s.data).value("args", Merge(args))
	if err != nil {
		return nil, err
	}
	return v.(map[string]any), nil
}

// Userdata renders the content and encodes the result: plain, or gzip without a timestamp, so that
// the result is deterministic. It is what the machine gets: a provider whose API wants another
// encoding adds it.
func (s Values) Userdata(u fleet.Userdata) ([]byte, error) {
	text, err := s.userdata(u)
	if err != nil {
		return nil, err
	}
	return encode(u, text)
}

func (s Values) userdata(u fleet.Userdata) (string, error) {
	return newRenderer(s.templates, s.facts.data(true)).text("userdata", u.Content)
}
