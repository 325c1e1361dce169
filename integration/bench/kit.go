package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/server"
)

// kit is what simulated agents in another process need: the keys of a temporary cluster, and its
// instances.
type kit struct {
	CACert    string             `json:"ca_cert"`
	CAKey     string             `json:"ca_key"`
	NonceKey  string             `json:"nonce_key"`
	Instances []fleet.InstanceID `json:"instances"`
	Addrs     server.Endpoints   `json:"addrs"`
}

func writeKit(ctx context.Context, path string, store object.Store, records []fleet.Instance, addrs server.Endpoints) error {
	t, err := trust(ctx, store)
	if err != nil {
		return err
	}
	if err := recordOperator(ctx, store, t.CA); err != nil {
		return err
	}
	sealed, err := openSecrets(ctx, store)
	if err != nil {
		return err
	}
	k := kit{CACert: string(t.Bundle.PEM()), Addrs: addrs}
	for name, to := range map[string]*string{secrets.CAKeyName: &k.CAKey, secrets.NonceKeyName: &k.NonceKey} {
		text, err := sealed.Get(ctx, name)
		if err != nil {
			return err
		}
		*to = string(text)
	}
	for _, r := range records {
		k.Instances = append(k.Instances, r.ID)
	}
	body, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.WriteFile(path, body, 0o600)
}

// recordOperator writes the operator's record, so that servers admit it.
func recordOperator(ctx context.Context, store object.Store, ca *pki.CA) error {
	o := fleet.Operator{ID: operatorID, Tenant: fleet.DefaultTenant}
	body, err := json.Marshal(o.Written(0, "bench"))
	if err == nil {
		body, err = record.NewSeal(ca.DeriveKey(fleet.OperatorSeal)).Close(o.Key(), body)
	}
	if err == nil {
		_, err = store.Put(ctx, o.Key(), body, object.IfAbsent())
	}
	if errors.Is(err, object.ErrConflict) {
		return nil // of an earlier kit
	}
	return err
}

func readKit(path string) (kit, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return kit{}, fmt.Errorf("read the kit: %w", err)
	}
	var k kit
	if err := json.Unmarshal(body, &k); err != nil {
		return kit{}, fmt.Errorf("read the kit: %w", err)
	}
	return k, nil
}

// ca returns the cluster's CA.
func (k kit) ca() (*pki.CA, error) {
	bundle, err := pki.ParseBundle([]byte(k.CACert))
	if err != nil {
		return nil, err
	}
	key, err := pki.ParsePrivateKey([]byte(k.CAKey))
	if err != nil {
		return nil, err
	}
	return pki.FindCA(bundle, key)
}
