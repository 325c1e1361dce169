package config

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/fleet"
)

// The kinds of a file that an instance receives.
const (
	fileCertificate = "certificate" // made for the instance after a certificate template
	fileSecret      = "secret"      // a secret of the cluster, by name
	fileStorage     = "storage"     // an object below files/
	fileEnv         = "env"         // lines of NAME=value
	fileJSON        = "json"        // any value
	fileString      = "string"      // a text
)

var secretNamePattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_])?$`)

// StoragePrefix is where the objects lie that files of kind storage may name.
const StoragePrefix = "files/"

func (v *validator) files(path string, set map[string]fleet.File) {
	if len(set) > maxFiles {
		v.addf(path, "%d files: at most %d are allowed", len(set), maxFiles)
	}
	spellings := map[string]string{}
	for _, name := range sortedKeys(set) {
		file, p := set[name], join(path, name)
		if err := files.CheckName(name); err != nil {
			v.addf(p, "%s", err)
		}
		if other, ok := spellings[strings.ToLower(name)]; ok {
			v.addf(p, "differs from %s by case only, which some file systems don't tell apart", other)
		}
		spellings[strings.ToLower(name)] = name
		if v.oneOf(p+".kind", file.Kind, fileCertificate, fileSecret, fileStorage, fileEnv, fileJSON, fileString) {
			v.foreignFields(p, file)
			v.file(p, name, file)
		}
	}
	v.sharedKeys(path, set)
}

const maxFiles = 200

// foreignFields refuses fields that the file's kind does not read.
func (v *validator) foreignFields(path string, f fleet.File) {
	for _, field := range []struct {
		name  string
		given bool
		kinds []string
	}{
		{"template", f.Template != "", []string{fileCertificate}},
		{"key", f.Key != nil, []string{fileCertificate}},
		{"source", f.Source != "", []string{fileSecret, fileStorage}},
		{"content", f.Content != nil, []string{fileJSON, fileString}},
		{"values", f.Values != nil, []string{fileEnv}},
	} {
		if field.given && !slices.Contains(field.kinds, f.Kind) {
			v.addf(path+"."+field.name, "a file of kind %s has no such field: it belongs to %s", f.Kind, strings.Join(field.kinds, " and "))
		}
	}
}

func (v *validator) file(path, name string, f fleet.File) {
	switch f.Kind {
	case fileCertificate:
		v.extension(path, name, f.Kind, ".crt")
		v.certificateFile(path, f)
	case fileSecret:
		v.secretFile(path, f.Source)
	case fileStorage:
		rest, ok := strings.CutPrefix(f.Source, StoragePrefix)
		if !ok || !isRelativePath(rest) {
			v.addf(path+".source", "%.80q is not valid: want a path below %s without . and .. in it, such as %skubelet.json",
				f.Source, StoragePrefix, StoragePrefix)
		}
	case fileEnv:
		v.extension(path, name, f.Kind, ".env")
		v.envFile(path+".values", f.Values)
	case fileJSON:
		v.extension(path, name, f.Kind, ".json")
		if f.Content == nil {
			v.addf(path+".content", "required: want the value to write")
		}
		v.texts(path+".content", f.Content)
	case fileString:
		text, ok := f.Content.(string)
		if !ok {
			v.addf(path+".content", "required: want a string")
		}
		v.text(path+".content", text, false)
	}
}

func (v *validator) extension(path, name, kind, want string) {
	if files.CheckName(name) == nil && !strings.HasSuffix(name, want) {
		v.addf(path, "a file of kind %s has the extension %s", kind, want)
	}
}

func (v *validator) certificateFile(path string, f fleet.File) {
	if v.given(path+".template", f.Template, "the name of a certificate") {
		refer(&v.findings, path+".template", "certificate", f.Template, "certificates", v.shard.Certificates)
	}
	if f.Key == nil {
		v.addf(path+".key", `required: want {"source": "agent", "name": …}`)
		return
	}
	v.oneOf(path+".key.source", f.Key.Source, "agent")
	if err := files.CheckKeyName(f.Key.Name); err != nil {
		v.addf(path+".key.name", "%s", err)
	}
	if f.Key.Algorithm != "" {
		v.oneOf(path+".key.algorithm", f.Key.Algorithm, fleet.KeyEd25519, fleet.KeyECDSAP256)
	}
}

// sharedKeys refuses files that name one key and want it in different ways, and
// keys that no agent would make.
func (v *validator) sharedKeys(path string, set map[string]fleet.File) {
	first := map[string]string{} // by key: the file that named it first
	for _, name := range sortedKeys(set) {
		key := set[name].Key
		if key == nil {
			continue
		}
		folded := strings.ToLower(key.Name)
		other, ok := first[folded]
		switch {
		case !ok:
			first[folded] = name
		case set[other].Key.Name != key.Name:
			v.addf(join(path, name)+".key.name", "differs from %s, which %s names, by case only", set[other].Key.Name, other)
		case algorithm(*set[other].Key) != algorithm(*key):
			v.addf(join(path, name)+".key.algorithm", "%q, but %s wants the key %s as %q",
				algorithm(*key), other, key.Name, algorithm(*set[other].Key))
		}
	}
	if len(first) > files.MaxKeys {
		v.addf(path, "%d keys: at most %d are allowed", len(first), files.MaxKeys)
	}
}

func algorithm(k fleet.FileKey) string { return cmp.Or(k.Algorithm, fleet.KeyEd25519) }

// secretFile keeps the secrets that the cluster's identity rests on from being
// handed out.
func (v *validator) secretFile(path, source string) {
	switch {
	case !secretNamePattern.MatchString(source):
		v.addf(path+".source", "%.80q is no secret's name: want letters, digits, dots, hyphens and underscores", source)
	case strings.EqualFold(source, "ca.key"), strings.EqualFold(source, "registration-nonce.key"):
		v.addf(path+".source", "the secret %q never leaves the servers", source)
	}
}

func (v *validator) envFile(path string, values map[string]any) {
	if values == nil {
		v.addf(path, "required: want names and values")
	}
	for _, name := range sortedKeys(values) {
		p := join(path, name)
		if !envPattern.MatchString(name) {
			v.addf(p, "%.80q can't be the name of an environment variable: want letters, digits and underscores", name)
		}
		switch value := values[name].(type) {
		case string:
			v.text(p, value, false)
		case bool, int64, float64:
		default:
			v.addf(p, "want a string, a number, true or false")
		}
	}
}

// isRelativePath reports whether s is a slash-separated path that stays below
// where it starts, in one spelling only.
func isRelativePath(s string) bool {
	bad := func(r rune) bool { return r == '\\' || unicode.IsControl(r) || unicode.IsSpace(r) }
	if s == "" || len(s) > 512 || strings.ContainsFunc(s, bad) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(s, "/"), func(part string) bool { return part == "" || part == "." || part == ".." })
}
