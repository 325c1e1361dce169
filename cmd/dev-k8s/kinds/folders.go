package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
)

// claimsFile has the groups that own folders without a group in their name.
const claimsFile = ".folders.json"

// Folders maps resources to folders: {resource}, or {resource}.{group} if another group owns
// that name. Built-in resources always have the short name; otherwise it belongs to the first
// group, which is stored.
type Folders struct {
	builtin *builtin
	file    string

	mu     sync.Mutex
	claims map[string]string // resource: group
}

func openFolders(root string, b *builtin) (*Folders, error) {
	f := &Folders{builtin: b, file: filepath.Join(root, claimsFile), claims: map[string]string{}}
	text, err := os.ReadFile(f.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(text, &f.claims); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.file, err)
	}
	return f, nil
}

// Path returns the file of an object, relative to the root, with slashes.
func (f *Folders) Path(id ID) (string, error) {
	folder, err := f.folder(id)
	if err != nil {
		return "", err
	}
	ns := ""
	if id.Namespace != "" {
		ns = escape(id.Namespace)
	}
	return path.Join(folder, ns, escape(id.Name)+".json"), nil
}

func (f *Folders) folder(id ID) (string, error) {
	if group, ok := f.builtin.group(id.Resource); ok || id.Group == "" {
		if group == id.Group {
			return id.Resource, nil
		}
		return id.Resource + "." + id.Group, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.claims[id.Resource] {
	case id.Group:
		return id.Resource, nil
	case "":
		return id.Resource, f.claim(id.Resource, id.Group)
	default:
		return id.Resource + "." + id.Group, nil
	}
}

func (f *Folders) claim(resource, group string) error {
	claims := maps.Clone(f.claims)
	claims[resource] = group
	text, err := json.MarshalIndent(claims, "", "  ")
	if err != nil {
		return err
	}
	if err := WriteFile(f.file, append(text, '\n')); err != nil {
		return err
	}
	f.claims = claims
	return nil
}

// owner returns a folder's group and resource; said is the group in the object, for a folder
// that is not claimed.
func (f *Folders) owner(folder, said string) (group, resource string) {
	if resource, group, ok := strings.Cut(folder, "."); ok {
		return group, resource
	}
	if group, ok := f.builtin.group(folder); ok {
		return group, folder
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if group := f.claims[folder]; group != "" {
		return group, folder
	}
	return said, folder
}

// Temporary is the prefix of temporary files.
const Temporary = ".writing-"

// WriteFile writes a file atomically: after a crash it has the old or the new content.
func WriteFile(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	// CreateTemp's files are readable only by their owner: some objects are Secrets.
	f, err := os.CreateTemp(filepath.Dir(file), Temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
