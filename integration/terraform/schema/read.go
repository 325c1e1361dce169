package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// document is the relevant part of `terraform providers schema -json`:
// https://developer.hashicorp.com/terraform/cli/commands/providers/schema.
type document struct {
	Providers map[string]provider `json:"provider_schemas"`
}

type provider struct {
	Provider  *schema           `json:"provider"`
	Resources map[string]schema `json:"resource_schemas"`
	Data      map[string]schema `json:"data_source_schemas"`
	Ephemeral map[string]schema `json:"ephemeral_resource_schemas"`
}

type schema struct {
	Block block `json:"block"`
}

type block struct {
	Attributes map[string]attribute `json:"attributes"`
	Blocks     map[string]nested    `json:"block_types"`
}

type attribute struct {
	Type       json.RawMessage `json:"type"`
	Required   bool            `json:"required"`
	Optional   bool            `json:"optional"`
	Computed   bool            `json:"computed"`
	WriteOnly  bool            `json:"write_only"`
	Sensitive  bool            `json:"sensitive"`
	Deprecated bool            `json:"deprecated"`
}

type nested struct {
	Nesting string `json:"nesting_mode"`
	Min     int64  `json:"min_items"`
	Max     int64  `json:"max_items"`
	Block   block  `json:"block"`
}

var errNoProvider = errors.New("provider_schemas: want one of hashicorp/aws with resource_schemas")

// read finds the provider in a document.
func read(in io.Reader) (provider, error) {
	var all document
	if err := json.NewDecoder(in).Decode(&all); err != nil {
		return provider{}, err
	}
	for name, one := range all.Providers {
		if strings.HasSuffix(name, "/hashicorp/aws") && len(one.Resources) > 0 {
			return one, nil
		}
	}
	return provider{}, errNoProvider
}
