package files

import (
	"encoding/json"
	"fmt"
)

// manifest is the record of a set: the current one, or one that is being put in place.
type manifest struct {
	ConfigHash string   `json:"config_hash"`
	Names      []string `json:"names"`
	Digest     string   `json:"digest"` // of the contents: see digest
	// Fresh are the files that did not exist before, for undo.
	Fresh []string `json:"fresh,omitempty"`
	// First means that there was no config.hash before.
	First bool `json:"first,omitempty"`
}

// maxManifest is the maximum size of a manifest, far above the longest possible one, in bytes.
const maxManifest = 256 << 10

// hashText returns the content of config.hash.
func (m manifest) hashText() []byte { return []byte(m.ConfigHash + "\n" + m.Digest + "\n") }

func (m manifest) encode() ([]byte, error) { return json.Marshal(m) }

// parseManifest validates everything, because the names are used to remove files.
func parseManifest(data []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return manifest{}, fmt.Errorf("not a manifest: %w", err)
	}
	for _, names := range [][]string{m.Names, m.Fresh} {
		if err := CheckNames(names); err != nil {
			return manifest{}, err
		}
	}
	return m, checkHash(m.ConfigHash)
}
