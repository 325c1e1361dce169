package provider

import (
	"maps"
	"slices"
	"strings"
)

// Environment returns the variables that tell an agent who it is and whom to
// call. A provider that starts agents itself adds what depends on the place,
// the directories above all.
func (spec Spec) Environment() map[string]string {
	env := map[string]string{
		"NSTANCE_SERVER_REGISTRATION_ADDR": strings.Join(spec.Bootstrap.RegistrationAddrs, ","),
		"NSTANCE_SERVER_AGENT_ADDR":        strings.Join(spec.Bootstrap.AgentAddrs, ","),
		"NSTANCE_INSTANCE_ID":              string(spec.ID),
		"NSTANCE_INSTANCE_KIND":            spec.ID.Kind(),
		"NSTANCE_INSTANCE_HOSTNAME":        spec.Hostname,
	}
	if d := spec.Bootstrap.ReportInterval; d > 0 {
		env["NSTANCE_REPORT_INTERVAL"] = d.String()
	}
	return env
}

// managed lists the variables that only a provider sets.
func managed() []string {
	return []string{
		"NSTANCE_SERVER_REGISTRATION_ADDR", "NSTANCE_SERVER_AGENT_ADDR", "NSTANCE_INSTANCE_ID", "NSTANCE_INSTANCE_KIND",
		"NSTANCE_INSTANCE_HOSTNAME", "NSTANCE_INSTANCE_IPV4", "NSTANCE_IDENTITY_DIR", "NSTANCE_KEYS_DIR", "NSTANCE_RECV_DIR",
		"NSTANCE_REPORT_INTERVAL",
	}
}

// CheckEnvironment reports every variable in env, which came from the config at
// the path field, that can't be one or that is not the config's to set.
func CheckEnvironment(field string, env map[string]string) (wrong FieldErrors) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			wrong.Addf(field, "%.80q is not a variable's name", name)
		case slices.Contains(managed(), name):
			wrong.Addf(field+"."+name, "the provider sets this variable itself")
		case strings.ContainsRune(env[name], 0):
			wrong.Addf(field+"."+name, "the value holds a zero byte")
		}
	}
	return wrong
}

// MergeEnvironment returns layers on top of each other, the last one winning, as
// sorted NAME=value strings.
func MergeEnvironment(layers ...map[string]string) []string {
	merged := map[string]string{}
	for _, layer := range layers {
		maps.Copy(merged, layer)
	}
	list := make([]string, 0, len(merged))
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		list = append(list, name+"="+merged[name])
	}
	return list
}
