package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"golang.org/x/sync/errgroup"
)

// The shard and the group of all rows.
const (
	clusterID = "bench"
	shardID   = "bench-1"
	groupName = "web"
	kind      = "knd"

	encryptionKeyEnv = "NSTANCE_ENCRYPTION_KEY"
)

func groupKey() fleet.GroupKey {
	return fleet.GroupKey{Tenant: fleet.DefaultTenant, Name: groupName}
}

// shard has what a row sets in the shard's config; everything else has its default.
type shard struct {
	Size      int            `json:"size"`               // of each group
	Groups    int            `json:"groups,omitempty"`   // 0: one
	Others    map[string]int `json:"others,omitempty"`   // more groups: names and sizes
	Provider  map[string]any `json:"provider,omitempty"` // nil: the fake provider
	Unlimited bool           `json:"unlimited"`          // create rate
	NoDrain   bool           `json:"no_drain"`
	Files     bool           `json:"files"`                // of the template: one that depends on a var, two that don't
	MoreFiles int            `json:"more_files,omitempty"` // more that don't
	// RegistrationTimeout is a duration; empty: the default.
	RegistrationTimeout string `json:"registration_timeout,omitempty"`
	Settle              string `json:"settle,omitempty"` // likewise
}

// keys returns the keys of the shard's groups; the first one is groupKey.
func (s shard) keys() []fleet.GroupKey {
	keys := []fleet.GroupKey{groupKey()}
	for n := 1; n < s.Groups; n++ {
		keys = append(keys, fleet.GroupKey{Tenant: fleet.DefaultTenant, Name: fmt.Sprintf("%s-%d", groupName, n)})
	}
	return keys
}

// config returns the shard's config as an object's body.
func (s shard) config() ([]byte, error) {
	p := s.Provider
	if p == nil {
		p = map[string]any{"kind": config.ProviderFake}
	}
	server := map[string]any{"provider": p, "subnet_pools": map[string]any{"workers": []string{"local"}}}
	if s.Unlimited {
		server["create_rate"] = map[string]any{"per_second": 0}
	}
	if s.NoDrain {
		server["default_drain_timeout"] = "0s"
	}
	if s.RegistrationTimeout != "" {
		server["garbage_collection"] = map[string]any{"registration_timeout": s.RegistrationTimeout}
	}
	if s.Settle != "" {
		server["create_backoff"] = map[string]any{"settle": s.Settle}
	}
	template := map[string]any{"kind": kind, "arch": "amd64", "subnet_pool": "workers"}
	if s.Files {
		template["vars"] = map[string]any{"color": "none"}
		files := map[string]any{
			"app.conf": map[string]any{"kind": "string", "content": "color = {{ .Vars.color }}\n"},
			"app.json": map[string]any{"kind": "json", "content": map[string]any{"id": "{{ .Instance.ID }}"}},
			"app.env":  map[string]any{"kind": "env", "values": map[string]any{"SHARD": "{{ .Server.Shard }}"}},
		}
		for n := range s.MoreFiles {
			files[fmt.Sprintf("more-%d.conf", n)] = map[string]any{"kind": "string", "content": "{{ .Instance.ID }} of {{ .Server.Shard }}\n"}
		}
		template["files"] = files
	}
	groups := map[string]any{}
	for _, key := range s.keys() {
		groups[key.Name] = map[string]any{"template": kind, "size": s.Size}
	}
	for name, size := range s.Others {
		groups[name] = map[string]any{"template": kind, "size": size}
	}
	return json.Marshal(map[string]any{
		"cluster": map[string]any{
			"id": clusterID,
			"secrets": map[string]any{
				"provider":       config.SecretsObjectStorage,
				"encryption_key": map[string]any{"provider": config.KeyFromEnv, "source": encryptionKeyEnv},
			},
		},
		"server":    server,
		"templates": map[string]any{kind: template},
		"groups":    map[string]any{fleet.DefaultTenant: groups},
	})
}

// records returns all of the groups' instances in one phase, as an earlier leader left them: just
// created, each with its VM.
func (s shard) records(phase fleet.Phase, now time.Time) ([]fleet.Instance, error) {
	body, err := s.config()
	if err != nil {
		return nil, err
	}
	parsed, err := config.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("parse the bench's own config: %w", err)
	}
	groups, _ := parsed.Resolve(nil)
	keys := s.keys()
	n := s.Size * len(keys)
	out := make([]fleet.Instance, 0, n)
	for i := range n {
		key := keys[i%len(keys)]
		id, err := fleet.NewID(kind, now.Add(time.Duration(i-n)*time.Millisecond), rand.Reader)
		if err != nil {
			return nil, err
		}
		at := now.UTC()
		r := fleet.Instance{
			ID: id, Tenant: key.Tenant, Group: key.Name, Phase: phase, Epoch: 1, Rev: 1, Writer: "bench",
			CreatedAt: at, Hashes: groups[key].Hashes,
			Provider: fleet.ProviderRef{ID: vmName(id), Subnet: "local", CreateAttemptedAt: &at},
		}
		if phase == fleet.Running {
			r.RegisteredAt, r.PublicKeySHA256, r.Hostname = &at, strings.Repeat("0", 64), string(id)
			r.IPs = []string{loopback}
		}
		out = append(out, r)
	}
	return out, nil
}

func recordKey(i fleet.Instance) string {
	return "instance/" + shardID + "/" + i.Tenant + "." + i.ID.StorageKey() + ".json"
}

const configKey = "config/" + shardID + ".jsonc"

// objects returns a shard's config and records as in the bucket.
func (s shard) objects(records []fleet.Instance) (map[string][]byte, error) {
	body, err := s.config()
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{configKey: body}
	for _, r := range records {
		if out[recordKey(r)], err = json.Marshal(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fill stores objects.
func fill(ctx context.Context, store object.Store, objects map[string][]byte) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(64)
	for key, body := range objects {
		work.Go(func() error {
			_, err := store.Put(ctx, key, body, object.IfAbsent())
			return err
		})
	}
	return work.Wait()
}

// readRecords reads all records of the shard from a store.
func readRecords(ctx context.Context, store object.Store) ([]fleet.Instance, error) {
	infos, err := object.All(ctx, store, "instance/"+shardID+"/")
	if err != nil {
		return nil, err
	}
	out := make([]fleet.Instance, len(infos))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(16)
	for n, info := range infos {
		work.Go(func() error {
			o, err := store.Get(ctx, info.Key)
			if err != nil {
				return err
			}
			return json.Unmarshal(o.Body, &out[n])
		})
	}
	return out, work.Wait()
}
