package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/nstance/nstance/pkg/fleet"
)

// hashLength is the length of a hash, in hex characters. It distinguishes versions of one group,
// and is not a security measure.
const hashLength = 16

// Hashes returns the hashes of a group's definition. Infra covers what a machine is built from:
// args before rendering, instance type, the name of the subnet pool, userdata, kind and arch.
// Runtime covers what can be pushed to a running machine: vars and files, including the
// certificates that the files use. Neither depends on the order of keys, on the process, or on
// size.
func (s *Shard) Hashes(g fleet.Group) (fleet.Hashes, error) {
	infra, err := digest(map[string]any{
		"args":          Merge(g.Args),
		"instance_type": g.InstanceType,
		"subnet_pool":   g.SubnetPool,
		"userdata":      g.Userdata,
		"kind":          g.Kind,
		"arch":          g.Arch,
	})
	if err != nil {
		return fleet.Hashes{}, err
	}
	certificates := map[string]Certificate{}
	for _, file := range g.Files {
		if file.Kind == fileCertificate {
			certificate := s.Certificates[file.Template]
			certificate.Tenants = nil // not part of the content
			certificates[file.Template] = certificate
		}
	}
	runtime, err := digest(map[string]any{
		"vars": Merge(g.Vars), "files": copyFiles(g.Files), "certificates": certificates,
	})
	if err != nil {
		return fleet.Hashes{}, err
	}
	return fleet.Hashes{Infra: infra, Runtime: runtime}, nil
}

// digest hashes v as JSON; encoding/json sorts keys.
func digest(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:hashLength], nil
}

func copyFiles(files map[string]fleet.File) map[string]fleet.File {
	out := make(map[string]fleet.File, len(files))
	for name, file := range files {
		if file.Key != nil {
			key := *file.Key
			file.Key = &key
		}
		file.Content = copyValue(file.Content)
		if file.Values != nil {
			file.Values = Merge(file.Values)
		}
		out[name] = file
	}
	return out
}
