// The elements of the page of a run.

import {byId} from "./dom.js";

export const controls = byId("controls");
export const help = byId("help");
export const message = byId("message");
export const query = byId("query");
export const byProcess = byId("by-process");
export const byKind = byId("by-kind");
export const byKey = byId("by-key");
export const whichRun = byId("runs");
export const strips = byId("strips");
export const listed = byId("listed");
export const notice = byId("notice");
export const scroller = byId("scroller");
export const names = byId("names");
export const rows = byId("rows");
export const canvas = byId("canvas");
export const tabs = byId("tabs");
export const detail = byId("detail");
export const compared = byId("compared");
export const reason = byId("reason");
