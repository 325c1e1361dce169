package shardtest

import "slices"

// command is the pattern of a script line, and its function.
type command struct {
	pattern string
	do      func(*Shard, args) error
}

// commands is the whole language. A step that is impossible (starting a running server) is
// noted in the timeline, and the script continues. The first pattern that matches a line counts.
func commands() []command {
	return slices.Concat(shardCommands(), machineCommands(), requestCommands())
}

// shardCommands are the commands about time, servers, and their dependencies.
func shardCommands() []command {
	return []command{
		{"wait SPAN", doWait},
		{"settle SPAN", doSettle},
		{"heal", doHeal},

		{"start SERVER", doStart},
		{"stop SERVER", doStop},
		{"crash SERVER", doCrash},
		{"crash SERVER before COUNT", doCrashBefore},
		{"crash SERVER after COUNT", doCrashAfter},
		{"suspend SERVER", doSuspend},
		{"suspend SERVER before COUNT", doSuspendBefore},
		{"resume SERVER", doResume},

		{"forget SERVER", doForget},

		{"clock ahead SPAN", doClockAhead},
		{"clock back SPAN", doClockBack},

		{"cut HOST HOST", doCut},
		{"join HOST HOST", doJoin},

		{"store fair", doStoreFair},
		{"store down", doStoreDown},
		{"store slow SPAN", doStoreSlow},
		{"store lossy COUNT", doStoreLossy},

		{"listings KIND lack COUNT", doListingsLack},
		{"listings KIND late SPAN", doListingsLate},
		{"listings fair", doListingsFair},

		{"provider fair", doProviderFair},
		{"provider down", doProviderDown},
		{"provider throttles", doProviderThrottles},
		{"provider refuses COUNT CALL", doProviderRefuses},
		{"provider misses COUNT CALL", doProviderMisses},
		{"provider loses COUNT CALL", doProviderLoses},
		{"provider hangs COUNT CALL", doProviderHangs},
		{"provider delays COUNT CALL SPAN", doProviderDelays},
		{"provider takes COUNT calls", doProviderTakes},
		{"provider keeps machines", doProviderKeeps},

		{"lists SERVER fail", doListsFail},
		{"lists SERVER crawl SPAN", doListsCrawl},
		{"lists SERVER fair", doListsFair},
		{"puts SERVER take SPAN", doPutsTake},
	}
}

// machineCommands are the commands about VMs and their agents.
func machineCommands() []command {
	return []command{
		{"vm dies INSTANCE", doVMDies},
		{"vm stops INSTANCE", doVMStops},
		{"vm vanishes INSTANCE", doVMVanishes},
		{"notice INSTANCE SPAN", doNotice},
		{"machines GROUP die SPAN", doMachinesDie},
		{"machines GROUP mute", doMachinesMute},
		{"machines GROUP fair", doMachinesFair},
		{"agent dies INSTANCE SPAN", doAgentDies},
		{"agent restarts INSTANCE SPAN", doAgentRestarts},
	}
}

// requestCommands are the commands that call the shard's API.
func requestCommands() []command {
	return []command{
		{"config var COUNT", doConfigVar}, // before GROUP, which matches these words, too
		{"config spare COUNT", doConfigSpare},
		{"config GROUP COUNT", doConfigSize},
		{"config type TYPE", doConfigType},
		{"config drain SPAN", doConfigDrain},
		{"config broken", doConfigBroken},
		{"config mended", doConfigMended},
		{"config without GROUP", doConfigWithout},
		{"config renames GROUP", doConfigRenames},
		{"config whole", doConfigWhole},
		{"config removes GROUP", doConfigRemoves},
		{"config unsets GROUP", doConfigUnsets},
		{"text config lost", doConfigLost},
		{"text config old COUNT", doConfigOld},
		{"text applied lost", doAppliedLost},
		{"text applied old COUNT", doAppliedOld},
		{"text applied back", doAppliedBack},
		{"record GROUP lost", doGroupLost},
		{"record GROUP spoilt", doGroupSpoilt},
		{"record GROUP old COUNT", doGroupOld},
		{"record GROUP back", doGroupBack},
		{"weigh", doWeigh},
		{"refresh", doRefresh},
		{"refresh unconfirmed", doRefreshUnconfirmed},

		{"scale GROUP COUNT", doScale},
		{"scale GROUP COUNT remove INSTANCE", doScaleRemove},
		{"group GROUP COUNT", doGroup},
		{"ungroup GROUP", doUngroup},
		{"create GROUP KEY", doCreate},
		{"delete INSTANCE", doDelete},
		{"delete key KEY", doDeleteKey},
		{"ack", doAck},
	}
}
