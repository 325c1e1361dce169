// Package aws replaces pkg/provider/aws in a server without AWS: see withoutAWS.
package aws

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/nstance/nstance/pkg/provider"
)

// Config has the fields that a server uses.
type Config struct {
	Region string
	Getenv func(string) string
	Leader *Leader
}

// Leader has the fields that a server uses.
type Leader struct {
	Interface, Self string
	IPv4, IPv6      netip.Addr
}

func Default(provider.Scope, *slog.Logger) Config             { return Config{} }
func New(context.Context, Config) (provider.Provider, error)  { return nil, provider.ErrInvalid }
func (cfg Config) WithOptions(map[string]any) (Config, error) { return cfg, nil }
func (cfg Config) CheckOptions() error                        { return nil }
func (cfg Config) CheckArgs(provider.Spec) error              { return nil }
func (l *Leader) Check() error                                { return nil }
