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

// The kinds of files that instances receive.
const (
	fileCertificate = "certificate" // issued to the instance from a certificate template
	fileSecret      = "secret"      // a secret of the cluster, by name
	fileStorage     = "storage"     // an object below files/
	fileEnv         = "env"         // lines of NAME=value
	fileJSON        = "json"        // any value
	fileString      = "string"      // a text
)

var secretNamePattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_])?$`)

// StoragePrefix is the prefix of the objects that files of kind storage may use.
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
			accessOf(v).file(p, file, v.users)
		}
	}
	v.sharedKeys(path, set)
}

const maxFiles = 200

// foreignFields refuses fields that the file's kind does not use.
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
		v.secretName(path+".source", f.Source)
	case fileStorage:
		v.storedFile(path+".source", f.Source)
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
	v.fileKey(path+".key", f.Key)
}

// fileKey checks the key of a certificate.
func (f *findings) fileKey(path string, key *fleet.FileKey) {
	if key == nil {
		f.addf(path, `required: want {"source": "agent", "name": …}`)
		return
	}
	f.oneOf(path+".source", key.Source, "agent")
	if err := files.CheckKeyName(key.Name); err != nil {
		f.addf(path+".name", "%s", err)
	}
	if key.Algorithm != "" {
		f.oneOf(path+".algorithm", key.Algorithm, fleet.KeyEd25519, fleet.KeyECDSAP256)
	}
}

// storedFile checks the object key of a file.
func (f *findings) storedFile(path, key string) {
	rest, ok := strings.CutPrefix(key, StoragePrefix)
	if !ok || !isRelativePath(rest) {
		f.addf(path, "%.80q is not valid: want a path below %s without . and .. in it, such as %skubelet.json", key, StoragePrefix, StoragePrefix)
	}
}

// sharedKeys refuses files that use one key with different settings, and more keys than an agent
// generates.
func (v *validator) sharedKeys(path string, set map[string]fleet.File) {
	first := map[string]string{} // by key: the first file that uses it
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

// secretName refuses the secrets that the cluster's identity depends on.
func (f *findings) secretName(path, name string) {
	switch {
	case !secretNamePattern.MatchString(name):
		f.addf(path, "%.80q is not a secret's name: want letters, digits, dots, hyphens and underscores", name)
	case slices.Contains([]string{"ca-bundle", "ca.key", "registration-nonce.key"}, strings.ToLower(name)):
		f.addf(path, "the secret %q never leaves the servers", name)
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

// isRelativePath reports whether s is a canonical slash-separated path that does not leave its
// root.
func isRelativePath(s string) bool {
	bad := func(r rune) bool { return r == '\\' || unicode.IsControl(r) || unicode.IsSpace(r) }
	if s == "" || len(s) > 512 || strings.ContainsFunc(s, bad) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(s, "/"), func(part string) bool { return part == "" || part == "." || part == ".." })
}
