/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A page with the drawing that needs nothing from elsewhere: the mouse moves and scales it, what
 * is under it is explained and its cables stand out, and a node is found by name. No state.
 */
#include "topology/draw.h"
#include "topology/picture.h"

static const char head[] =
	"<meta name=\"viewport\" content=\"width=device-width\"><style>"
	"html,body{margin:0;height:100%;background:#fbfbfd;font:14px system-ui,sans-serif}"
	"body>svg{width:100vw;height:100vh;display:block;cursor:grab}"
	"body>svg:active{cursor:grabbing}"
	"#tip{position:fixed;display:none;max-width:34em;padding:.6em .9em;background:#1b263bee;"
	"color:#fff;border-radius:8px;white-space:pre-line;pointer-events:none;"
	"font-variant-numeric:tabular-nums;line-height:1.45}"
	"#tip::first-line{font-weight:700}"
	"#find{position:fixed;right:20px;top:18px;padding:.5em .8em;width:13em;border:1px solid "
	"#b9c4d3;border-radius:8px;font:inherit;background:#fff}"
	"svg.pick path.l{stroke-opacity:.06}svg.pick path.l.hot{stroke-opacity:1;stroke:#0b5fff;"
	"stroke-width:2.4}.found rect,circle.found{stroke:#ff9f1c;stroke-width:5}"
	"</style></head><body>\n";

static const char script[] =
	"<div id=\"tip\"></div><input id=\"find\" placeholder=\"find a node\" "
	"aria-label=\"find a node\">\n<script>\n"
	"const svg=document.querySelector('svg'),tip=document.getElementById('tip');\n"
	"svg.removeAttribute('width');svg.removeAttribute('height');"
	"svg.setAttribute('preserveAspectRatio','xMidYMin');\n"
	"let box=svg.getAttribute('viewBox').split(' ').map(Number),drag=null;\n"
	"const show=()=>svg.setAttribute('viewBox',box.join(' '));\n"
	"const text=new Map(),byNode=new Map(),byName=new Map();\n"
	"for(const t of svg.querySelectorAll('title')){const e=t.parentNode;text.set(e,"
	"t.textContent);t.remove();if(e.id)byName.set(t.textContent.split('\\n')[0]."
	"toLowerCase(),e)}\n"
	"for(const p of svg.querySelectorAll('path[data-a]'))for(const n of[p.dataset.a,"
	"p.dataset.b]){if(!byNode.has(n))byNode.set(n,[]);byNode.get(n).push(p)}\n"
	"const thing=e=>{while(e&&e!==svg&&!text.has(e))e=e.parentNode;return "
	"text.has(e)?e:null};\n"
	"let hot=[];\n"
	"const pick=e=>{for(const p of hot)p.classList.remove('hot');hot=[];\n"
	" if(e&&e.id)hot=byNode.get(e.id.slice(1))||[];else if(e)hot=[e];\n"
	" for(const p of hot)p.classList.add('hot');svg.classList.toggle('pick',hot.length>0)};\n"
	"svg.addEventListener('mousemove',m=>{\n"
	" if(drag){const k=box[2]/svg.clientWidth,l=box[3]/svg.clientHeight,s=Math.max(k,l);\n"
	"  "
	"box[0]=drag[2]-(m.clientX-drag[0])*s;box[1]=drag[3]-(m.clientY-drag[1])*s;show();return}\n"
	" const e=thing(m.target);pick(e);if(!e){tip.style.display='none';return}\n"
	" tip.textContent=text.get(e);tip.style.display='block';\n"
	" const w=tip.offsetWidth,h=tip.offsetHeight;\n"
	" tip.style.left=Math.min(m.clientX+16,innerWidth-w-8)+'px';\n"
	" tip.style.top=Math.min(m.clientY+16,innerHeight-h-8)+'px'});\n"
	"svg.addEventListener('mousedown',m=>{drag=[m.clientX,m.clientY,box[0],box[1]];"
	"m.preventDefault()});\n"
	"addEventListener('mouseup',()=>drag=null);\n"
	"svg.addEventListener('mouseleave',()=>{tip.style.display='none';pick(null)});\n"
	"svg.addEventListener('wheel',m=>{m.preventDefault();\n"
	" const p=new "
	"DOMPoint(m.clientX,m.clientY).matrixTransform(svg.getScreenCTM().inverse());\n"
	" const f=Math.exp(Math.sign(m.deltaY)*.15);\n"
	" box=[p.x-(p.x-box[0])*f,p.y-(p.y-box[1])*f,box[2]*f,box[3]*f];show()},{passive:false});\n"
	"document.getElementById('find').addEventListener('input',i=>{\n"
	" for(const e of svg.querySelectorAll('.found'))e.classList.remove('found');\n"
	" const e=byName.get(i.target.value.trim().toLowerCase());if(!e){pick(null);return}\n"
	" e.classList.add('found');pick(e);\n"
	" const b=e.getBoundingClientRect(),p=new DOMPoint(b.x+b.width/2,b.y+b.height/2).\n"
	"  matrixTransform(svg.getScreenCTM().inverse());\n"
	" box[0]=p.x-box[2]/2;box[1]=p.y-box[3]/2;show()});\n"
	"</script></body></html>\n";

int drawing_html(const struct drawing *drawing, FILE *out)
{
	int err;

	fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", out);
	picture_text(out, drawing->topology->title);
	fputs("</title>", out);
	fputs(head, out);
	err = drawing_svg(drawing, out);
	fputs(script, out);
	return err;
}
