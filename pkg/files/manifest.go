package files

import (
	"encoding/json"
	"fmt"
)

// manifest is the record of a set: of the one that is in place, or of the one
// that is being put there.
type manifest struct {
	ConfigHash string   `json:"config_hash"`
	Names      []string `json:"names"`
	// Fresh are the files that were not there before, for putting things back.
	Fresh []string `json:"fresh,omitempty"`
	// First says that there was no config.hash before.
	First bool `json:"first,omitempty"`
}

// maxManifest is far more than the longest manifest has, in bytes.
const maxManifest = 256 << 10

func (m manifest) encode() ([]byte, error) { return json.Marshal(m) }

// parseManifest trusts nothing: its names are used to remove files.
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
